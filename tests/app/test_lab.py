"""What measures and trains for the documentation, in miniature: it runs, and it learns."""

import json
import random
from pathlib import Path

import pytest
import torch
from attrs import asdict
from click.testing import CliRunner
from transformers import AutoTokenizer, LlamaForCausalLM

from lab.heads import tables as head_tables
from lab.pair.learner import Recipe, Shape
from lab.pair.text import END_OF_TEXT_ID
from lab.pair.training import train_pair, variation_share
from lab.speed import cpu as cpu_speed
from lab.speed import engine as engine_speed


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
    monkeypatch.setattr("lab.heads.tables.DRAFT", draft)
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


def test_the_draft_learns_divergence_first_and_then_variation() -> None:
    shares = [variation_share(step / 12) for step in (1, 4, 5, 6, 12)]
    assert shares == pytest.approx([0, 0, 0.5, 1, 1], abs=1e-9)


def test_the_reference_on_a_cpu_is_timed_beside_transformers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_speed, "VOCAB_SIZE", 300)
    monkeypatch.setattr(cpu_speed, "NUM_THREADS", torch.get_num_threads())
    cpu_speed.main(num_rounds=1)
    head, _, *rows = capsys.readouterr().out.splitlines()[2:]
    assert head.endswith("| acceptor | transformers |")
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in cpu_speed.RECIPES]
