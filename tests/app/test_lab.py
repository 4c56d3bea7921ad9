"""The programs that measure for the documentation run, in miniature."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from lab.heads import tables as head_tables
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
def test_every_run_keeps_tables_of_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_reference_on_a_cpu_is_timed_beside_transformers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_speed, "VOCAB_SIZE", 300)
    monkeypatch.setattr(cpu_speed, "NUM_THREADS", torch.get_num_threads())
    cpu_speed.main(num_rounds=1)
    head, _, *rows = capsys.readouterr().out.splitlines()[2:]
    assert head.endswith("| acceptor | transformers |")
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in cpu_speed.RECIPES]
