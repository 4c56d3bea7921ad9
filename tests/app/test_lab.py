"""What measures and trains for the documentation, in miniature: it runs, and it learns."""

import json
import random
from pathlib import Path

import pytest
import torch
from attrs import asdict, evolve
from click.testing import CliRunner
from torch import Tensor
from transformers import AutoTokenizer, LlamaForCausalLM

pytest.importorskip("cattrs", reason="needs cattrs, which reads records")

from acceptor.adapters.draft_heads.loader import find_head, load_head
from acceptor.adapters.loader import load_model
from acceptor.app.bundled import bundled_pair
from kit.draft_heads import Arithmetic, HeadFiles
from lab import cpu_speed, engine_speed, head_tables, head_training
from lab.head_learner import Learner
from lab.head_training import read_texts, train_head
from lab.pair_learner import Recipe, Shape
from lab.pair_text import END_OF_TEXT_ID
from lab.pair_training import distillation_loss, train_pair, variation_share


@pytest.mark.slow
def test_a_rehearsal_reaches_every_part(tmp_path: Path) -> None:
    arguments = ["--rehearse", "--backend", "reference", "--out", str(tmp_path)]
    result = CliRunner().invoke(engine_speed.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "engine.json").read_text())
    kinds = [(row["num_reqs"], row["num_spec_tokens"]) for row in record["rows"]]
    assert kinds == [(1, 3), (1, 0), (3, 3), (3, 0)]
    for row in record["rows"]:
        assert 0 < row["num_steps"] <= engine_speed.REHEARSAL.num_steps
        assert (row["tokens_per_step"] > 1) == (row["num_spec_tokens"] > 0)
        assert row["verification_ms"] > 0
    assert record["hugging_face"].keys() == {"plain", "assisted"}
    assert (tmp_path / "engine.md").read_text() == engine_speed.as_markdown(record)


@pytest.mark.usefixtures("tiny_shapes")
def test_tables_of_heads_are_kept_after_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = json.loads((tmp_path / "llama-3-8b.json").read_text()) | {"num_hidden_layers": 1}
    monkeypatch.setattr("lab.head_tables.DRAFT", draft)
    monkeypatch.setattr(head_tables, "LOAD", ("--num-requests", "2", "--output-len", "4"))
    monkeypatch.setattr(head_tables, "ON_CPU", ("--num-requests", "1", "--output-len", "4"))
    monkeypatch.setattr(head_tables, "TRAINING_STEPS", 2)
    out = tmp_path / "heads.json"

    def measure(*arguments: str) -> head_tables.Heads:
        how = ["--device", "cpu", "--backend", "reference", "--target-layers", "7"]
        result = CliRunner().invoke(head_tables.main, [*arguments, "--json", str(out), *how])
        assert result.exit_code == 0, result.output
        heads = head_tables.Heads.read(out)
        assert all(table in result.output for table in heads.tables())
        return heads

    pair, training = "qwen3-eagle3", head_tables.TRAINING
    first = measure("--part", pair, "--part", training, "--part", head_tables.BUNDLED)
    assert first.training is not None
    assert first.training.last.step == 2
    both = measure("--part", head_tables.ONE_B, "--part", head_tables.EAGLE3)
    assert both.training == first.training
    assert both.served[pair] == first.served[pair]
    for num_reqs in (1, 16):
        of = head_tables.steps(both.served)[num_reqs]
        assert of.keys() == {"plain", head_tables.ONE_B, head_tables.EAGLE3}
    _, pairs = both.tables()
    drafters = [run.setting.drafter for run in both.served[head_tables.BUNDLED].runs]
    assert drafters == [None, "model", "eagle3", "ngram", "early-exit"]
    assert pairs.count(f"\n| `{pair}` | ") == 1


MINIATURE = Recipe(
    vocab_size=300,
    context_length=32,
    target=Shape(32, 2, 2, 1, 64),
    draft=Shape(16, 1, 2, 2, 384),
    target_rows_per_step=8,
    target_steps=40,
    target_learning_rate=0.02,
    draft_rows_per_step=8,
    draft_steps=60,
    draft_learning_rate=0.02,
    sampled_rows=8,
    evaluation_rows=4,
    evaluate_every=20,
    average_decay=0.5,
)


def write_text(path: Path, num_paragraphs: int = 900) -> Path:
    draw = random.Random(7)  # noqa: S311 - text, not a secret
    things = ["house", "hill", "wind", "night", "river"]
    paragraphs = (f"The {draw.choice(things)} was old and quiet." for _ in range(num_paragraphs))
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return path


def test_a_run_learns_and_writes_checkpoints_that_transformers_loads(tmp_path: Path) -> None:
    train_pair([write_text(tmp_path / "text.txt")], tmp_path, MINIATURE, torch.device("cpu"))
    torch.use_deterministic_algorithms(mode=False)
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    for name in ("target", "draft"):
        model, info = LlamaForCausalLM.from_pretrained(
            tmp_path / name, dtype="auto", output_loading_info=True
        )
        assert not info["missing_keys"] | info["unexpected_keys"]
        assert model.config.eos_token_id == model.config.bos_token_id == END_OF_TEXT_ID
        assert sum(p.numel() for p in model.parameters()) == record["models"][name]["parameters"]
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / name)
        assert tokenizer.decode(tokenizer("the old house").input_ids[1:]) == "the old house"
        first, *_, last = record["curves"][name]
        assert last["held_out_loss"] < first["held_out_loss"]
    assert last["overlap"] > first["overlap"]
    kept = min(point["held_out_loss"] for point in record["curves"]["target"])
    assert record["models"]["target"]["held_out_nats_per_token"] == pytest.approx(kept)


def test_the_recipe_is_that_of_the_pair_in_the_package() -> None:
    shipped = Path(__file__).parents[2] / "app" / "models" / "record.json"
    recipe = json.loads(shipped.read_text(encoding="utf-8"))["recipe"]
    mine = asdict(Recipe())
    assert mine == {name: recipe[name] for name in mine}


def test_the_distillation_loss_is_least_at_the_target() -> None:
    torch.manual_seed(0)
    target, other = torch.randn(2, 2, 3, 7)
    temperatures = torch.tensor([1.0, 0.7])
    for share in (0.0, 0.5, 1.0):
        best = distillation_loss(target, target, temperatures, share)
        assert best < distillation_loss(target, other, temperatures, share)
    assert distillation_loss(target, target, temperatures, 1.0) == pytest.approx(0, abs=1e-6)
    shares = [variation_share(step / 12) for step in (1, 4, 5, 6, 12)]
    assert shares == pytest.approx([0, 0, 0.5, 1, 1], abs=1e-9)


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


def test_a_run_goes_on_from_where_it_saved(
    trained: tuple[Learner, Path], tokens: Tensor, tmp_path: Path
) -> None:
    learner, _ = trained
    other = evolve(RECIPE, save_every=1)
    told: list[head_training.Progress] = []

    def stop_at_5(progress: head_training.Progress) -> None:
        told.append(progress)
        if progress.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_head(TARGET, learner.target, tokens, tmp_path, other, stop_at_5)
    again = train_head(TARGET, learner.target, tokens, tmp_path, other, told.append)
    assert [progress.step for progress in told] == [*range(1, 9)]
    for name, weight in learner.weights.items():
        assert torch.equal(weight, again.weights[name]), name


def test_the_command_tells_how_far_it_is_and_goes_on(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "head"
    text.write_text(TEXT, encoding="utf-8")
    given = {"target": TARGET, "text": text, "out": out, "steps": 3, "rows": 2, "context": 24}
    given |= {"draft-vocab-size": 400, "save-every": 2}
    flags = [f"--{name}={value}" for name, value in given.items()]
    first, again = (CliRunner().invoke(head_training.main, flags) for _ in range(2))
    assert (first.exit_code, again.exit_code) == (0, 0)
    lines = first.output.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 2 of 3", "step 3 of 3"]
    assert all("accepted per place 0." in line and "tokens/s" in line for line in lines)
    assert again.output == ""
    assert find_head(out) == "eagle3"


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


def test_the_reference_on_a_cpu_is_timed_beside_transformers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_speed, "VOCAB_SIZE", 300)
    monkeypatch.setattr(cpu_speed, "NUM_THREADS", torch.get_num_threads())
    cpu_speed.main(num_rounds=1)
    rows = capsys.readouterr().out.splitlines()[4:]
    assert [row.split(" | ")[1] for row in rows] == ["acceptor", "transformers"] * 2
