"""The training of an EAGLE-3 head in miniature: what it writes drafts as it was trained to."""

from pathlib import Path

import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.adapters.draft_heads.loader import find_head, load_head
from acceptor.app.bundled import bundled_pair
from kit.draft_heads import Arithmetic, HeadFiles
from lab.head_training import Learner, Recipe, read_texts, train_head

TARGET = bundled_pair()[0]
RECIPE = Recipe(steps=8, rows=2, context=24, draft_vocab_size=400, save_every=4)
TEXT = "It was old and quiet, and the river ran.\n\n" * 500


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return read_texts([file], TARGET)


@pytest.fixture(scope="module")
def trained(tokens: Tensor, tmp_path_factory: pytest.TempPathFactory) -> tuple[Learner, Path]:
    out = tmp_path_factory.mktemp("head")
    return train_head(TARGET, tokens, out, RECIPE), out


def test_it_learns(trained: tuple[Learner, Path], tokens: Tensor) -> None:
    learner, _ = trained
    fresh = Learner.new(TARGET, learner.target, learner.target_ids, RECIPE.seed)
    rows = tokens[:48].view(2, 24)
    with torch.no_grad():
        (before, _), (after, shares) = fresh.loss(rows, 3), learner.loss(rows, 3)
    assert after < 0.8 * before
    assert len(shares) == 3


def test_a_run_goes_on_from_where_it_saved(
    trained: tuple[Learner, Path], tokens: Tensor, tmp_path: Path
) -> None:
    learner, _ = trained
    other = evolve(RECIPE, save_every=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lab.head_training.click.echo", _stop_at(5))
        with pytest.raises(KeyboardInterrupt):
            train_head(TARGET, tokens, tmp_path, other)
    again = train_head(TARGET, tokens, tmp_path, other)
    for name, weight in learner.weights.items():
        assert torch.equal(weight, again.weights[name]), name


def _stop_at(step: int) -> object:
    def stop(line: str) -> None:
        if line.startswith(f"step {step} "):
            raise KeyboardInterrupt

    return stop


def test_it_is_trained_as_it_drafts(trained: tuple[Learner, Path], tokens: Tensor) -> None:
    learner, out = trained
    assert find_head(out) == "eagle3"
    assert load_head(out, "eagle3", learner.target).vocab_size == 400
    rows, num_places = tokens[None, :24], 3
    target = learner.target
    with torch.no_grad():
        hidden = target.forward(
            rows, torch.arange(24)[None], target.new_cache(1, 24), taps=(2, 10, 17)
        ).hidden
        unrolled = torch.stack([*learner.unroll(hidden, rows, num_places)])[:, 0]
        files = HeadFiles(config=learner.config, tensors=learner.weights)
        drafting = Arithmetic(
            files=files, embedding=target.embedding, lm_head=target.lm_head.weight
        )
        text = rows[0].tolist()
        for row in (0, 1, 13, 20):
            known, drafts = text[: row + 2], text[row + 2 : row + 2 + num_places]
            drafts += [0] * (num_places - len(drafts))
            said = drafting.draft_logits([one[0] for one in hidden], known, drafts)
            torch.testing.assert_close(unrolled[:, row], said, atol=1e-4, rtol=1e-4)
