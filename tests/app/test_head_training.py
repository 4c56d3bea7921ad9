"""Training a head: it learns as it drafts, for any target, and continues from a saved state."""

from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    PretrainedConfig,
)

from acceptor.adapters.draft_heads.loader import find_head, load_head
from acceptor.adapters.loader import load_any_model, load_model
from acceptor.app.bundled import bundled_pair
from kit.draft_heads import Arithmetic, HeadFiles
from lab.heads import training as head_training
from lab.heads.learner import Learner
from lab.heads.training import read_texts, train_head

TARGET = bundled_pair()[0]
RECIPE = head_training.Recipe(steps=8, rows=2, context=24, draft_vocab_size=400, save_every=4)
TEXT = "It was old and quiet, and the river ran.\n\n" * 500


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return read_texts([file], TARGET)


@pytest.fixture(scope="module")
def trained(tokens: Tensor, tmp_path_factory: pytest.TempPathFactory) -> tuple[Learner, Path]:
    out = tmp_path_factory.mktemp("head")
    return train_head(TARGET, load_model(TARGET), tokens, out, RECIPE), out


def test_it_learns(trained: tuple[Learner, Path], tokens: Tensor) -> None:
    learner, _ = trained
    fresh = Learner.new(TARGET, learner.target, learner.target_ids, RECIPE.seed)
    rows = tokens[:48].view(2, 24)
    with torch.no_grad():
        (before, _), (after, shares) = fresh.loss(rows, 3), learner.loss(rows, 3)
    assert after < 0.8 * before
    assert len(shares) == 3


def command(out: Path, text: Path, **more: Any) -> list[str]:
    given = {"target": TARGET, "text": text, "out": out, "steps": 3, "rows": 2, "context": 24}
    given |= {"draft_vocab_size": 400, "save_every": 2} | more
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


def run(out: Path, text: Path, **more: Any) -> tuple[int, str]:
    done = CliRunner().invoke(head_training.main, command(out, text, **more))
    return done.exit_code, done.output


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_the_command_tells_how_far_it_is_and_goes_on(tmp_path: Path, text: Path) -> None:
    first, again = (run(tmp_path / "head", text) for _ in range(2))
    assert (first[0], again) == (0, (0, ""))
    lines = first[1].splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 2 of 3", "step 3 of 3"]
    assert all("accepted per place 0." in line and "tokens/s" in line for line in lines)
    assert find_head(tmp_path / "head") == "eagle3"


@pytest.mark.parametrize("given", ["A line of many.\n" * 99, "1234 5678\n\n" * 99])
def test_a_text_that_cannot_be_cut_is_learned_whole(tmp_path: Path, text: Path, given: str) -> None:
    text.write_text(given, encoding="utf-8")
    assert run(tmp_path / "head", text)[0] == 0


SMALL: dict[str, Any] = {"vocab_size": 4096, "hidden_size": 32, "num_attention_heads": 4}
SMALL |= {"eos_token_id": 0}
INNER: dict[str, Any] = SMALL | {"intermediate_size": 48}
KINDS: dict[str, PretrainedConfig] = {
    **{f"llama of {n}": LlamaConfig(**INNER, num_hidden_layers=n) for n in (1, 2, 3, 4, 6, 7)},
    "gpt2": GPT2Config(**SMALL, num_hidden_layers=3),
    "gpt-neox": GPTNeoXConfig(**INNER, num_hidden_layers=3),
    "gemma3": Gemma3TextConfig(**INNER, num_hidden_layers=3, num_key_value_heads=2, head_dim=8),
}


def save_target(config: PretrainedConfig, folder: Path) -> Path:
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "target")
    copyfile(TARGET / "tokenizer.json", folder / "target" / "tokenizer.json")
    return folder / "target"


@pytest.mark.parametrize("kind", KINDS)
def test_any_target_of_transformers_gets_a_head(
    kind: str, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, config = tmp_path / "head", KINDS[kind]
    target = save_target(config, tmp_path)
    model: Any = load_any_model(target, adapter="transformers")
    monkeypatch.setattr(head_training, "load_any_model", lambda *_, **__: model)
    code, said = run(out, text, target=target, draft_vocab_size=40)
    assert code == 0, said
    assert find_head(out) == "eagle3"
    head, num_layers = load_head(out, "eagle3", model), config.num_hidden_layers
    shallow = tuple(range(num_layers))[-3:]
    assert head.taps == (shallow if num_layers < 7 else (2, num_layers // 2, num_layers - 3))
    assert all(one.grad is None for one in model.network.parameters())


def test_a_run_that_breaks_off_while_it_saves_ends_as_one_that_does_not(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken, save = tmp_path / "whole", tmp_path / "broken", torch.save
    assert run(whole, text, steps=6)[0] == 0
    with monkeypatch.context() as patched:

        def break_off(saved: dict[str, Any], file: Path) -> None:
            save(saved, file)
            if saved["step"] == 4:
                cut(file)
                raise KeyboardInterrupt

        patched.setattr(torch, "save", break_off)
        assert run(broken, text, steps=6)[0] == 1
    assert not (broken / "model.safetensors").exists()
    code, said = run(broken, text, steps=6)
    assert code == 0
    assert said.startswith("step 4 of 6")
    for name, tensor in load_file(whole / "model.safetensors").items():
        assert torch.equal(tensor, load_file(broken / "model.safetensors")[name]), name


def cut(state: Path) -> None:
    state.write_bytes(state.read_bytes()[:-1000])


def lose_weights(state: Path) -> None:
    torch.save({**torch.load(state, weights_only=True), "weights": {}}, state)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda state: state.write_bytes(b""), "expected what a run saves, got "),
        (cut, "expected what a run saves, got "),
        (lose_weights, "expected what a run saves, got no 'fc.weight'"),
        ({"text": "Another. " + TEXT}, "text: expected "),
        ({"target": bundled_pair()[1]}, "target: expected "),
        ({"steps": 4}, "steps: expected 4, got 3, with which the run began"),
        ({"draft_vocab_size": 41}, "draft_vocab_size: expected 41, got 400, with which "),
    ],
)
def test_a_run_goes_on_only_from_a_state_of_its_own(
    tmp_path: Path, text: Path, damage: Any, problem: str
) -> None:
    out, more = tmp_path / "head", {}
    assert run(out, text)[0] == 0
    if isinstance(damage, dict):
        more = dict(damage)
        text.write_text(more.pop("text", TEXT), encoding="utf-8")
    else:
        damage(out / "state.pt")
    code, said = run(out, text, **more)
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(f"Error: {out / 'state.pt'}: {problem}")


@pytest.mark.parametrize(
    ("given", "more", "problem"),
    [
        (b"One paragraph.", {}, "tokens of text: expected a number in [25, inf), got "),
        (b"Short.\n\n\n\n\nShort.", {}, "tokens of text: expected a number in [25, inf), got "),
        (b"", {}, "tokens of text: expected a number in [25, inf), got "),
        (b"\xff", {}, "text.txt: expected UTF-8 text, got "),
        (TEXT.encode(), {"context": 3}, "context: expected a number in [4, 1024], got 3"),
        (
            TEXT.encode(),
            {"target": "few ids"},
            "highest token of text: expected a number in [0, 39]",
        ),
        (TEXT.encode(), {"steps": 0}, "steps: expected a number in [1, inf), got 0"),
        (TEXT.encode(), {"target": "/nowhere"}, "expected a file, got none"),
    ],
)
def test_what_cannot_be_learned_from_is_one_line(
    tmp_path: Path, text: Path, given: bytes, more: dict[str, Any], problem: str
) -> None:
    text.write_bytes(given)
    if more.get("target") == "few ids":
        more = {"target": save_target(LlamaConfig(**INNER | {"vocab_size": 40}), tmp_path)}
    code, said = run(tmp_path / "head", text, **more)
    assert (code, said.count("\n")) == (1, 1)
    assert problem in said


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
