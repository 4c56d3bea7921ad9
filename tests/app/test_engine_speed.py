"""The engine's measurement reaches every part, and its table adds up."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from kit.llama_shapes import TARGET
from lab import engine_speed
from lab.engine_speed import REHEARSAL, as_markdown, main, share_of_limit, weight_bytes


def test_a_forward_reads_fifteen_gigabytes() -> None:
    embedding, norms = TARGET["vocab_size"] * 4096, 65 * 4096
    # Meta says 8.03 billion.
    assert weight_bytes(TARGET) // 2 + embedding + norms == 8_030_261_248


def test_assisted_generation_accepts_every_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    num_forwards, load = [0, 0], engine_speed.load_hugging_face
    models: list[Any] = []

    def counting(place: int, forward: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            num_forwards[place] += 1
            return forward(*args, **kwargs)

        return run

    def load_counted(*args: Any) -> Any:
        models.append(load(*args))
        models[-1].forward = counting(len(models) - 1, models[-1].forward)
        return models[-1]

    monkeypatch.setattr(engine_speed, "load_hugging_face", load_counted)
    speeds = engine_speed.hugging_face(REHEARSAL, torch.device("cpu"))
    assert min(speeds.values()) > 0
    # Four tokens a forward with the draft, one without.
    num_tokens = 8 + engine_speed.ASSISTED_TOKENS
    assert num_forwards[0] == num_tokens / 4 + num_tokens


ROWS = [
    {
        "num_reqs": num_reqs,
        "num_spec_tokens": num_spec_tokens,
        "num_steps": 77,
        "step_ms": 10.0,
        "tokens_per_second": speed,
        "tokens_per_step": 1.5,
        "verification_ms": 0.1,
    }
    for num_reqs, num_spec_tokens, speed in ((1, 3, 300.0), (1, 0, 100.0), (16, 3, 900.0))
]
RECORD: dict[str, Any] = {
    "date": "2000-01-01",
    "machine": {"device": "A GPU", "torch": "1"},
    "backend": "triton",
    "bandwidth": 4e12,
    "weight_bytes": {"target": 8e9, "draft": 4e9},
    "rows": ROWS,
    "hugging_face": {"assisted": 30.0, "plain": 20.0},
}


def test_the_table_says_what_was_recorded() -> None:
    lines = as_markdown(RECORD).splitlines()
    assert len({line.count("|") for line in lines[:5]}) == 1
    assert lines[2] == "| 1 | 3 | 10.00 | 50% | 300 | 1.50 | 0.100 ms (1.0%) | 3.00 | 10.00 |"
    assert lines[3].endswith("| 20% | 100 | 1.50 | 0.100 ms (1.0%) | – | 3.33 |")
    # Nothing to compare with yet, as in a run that is broken off.
    assert lines[4].endswith("| – | – |")
    assert lines[-1].startswith(
        "A GPU; torch 1; backend triton; 2000-01-01; memory is read at 4.00"
    )
    assert share_of_limit(RECORD, ROWS[1]) == pytest.approx(0.2)


@pytest.mark.slow
def test_a_rehearsal_reaches_every_part(tmp_path: Path) -> None:
    arguments = ["--rehearse", "--backend", "reference", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "engine.json").read_text())
    kinds = [(row["num_reqs"], row["num_spec_tokens"]) for row in record["rows"]]
    assert kinds == [(1, 3), (1, 0), (3, 3), (3, 0)]
    for row in record["rows"]:
        assert row["num_steps"] >= REHEARSAL.num_steps
        assert (row["tokens_per_step"] > 1) == (row["num_spec_tokens"] > 0)
        assert row["verification_ms"] > 0
    assert record["hugging_face"].keys() == {"plain", "assisted"}
    assert (tmp_path / "engine.md").read_text() == as_markdown(record)
