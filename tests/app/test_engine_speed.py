"""The engine's measurement reaches every part, and its table adds up."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.engine_speed import REHEARSAL, as_markdown, main, share_of_limit

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
        assert 0 < row["num_steps"] <= REHEARSAL.num_steps
        assert (row["tokens_per_step"] > 1) == (row["num_spec_tokens"] > 0)
        assert row["verification_ms"] > 0
    assert record["hugging_face"].keys() == {"plain", "assisted"}
    assert (tmp_path / "engine.md").read_text() == as_markdown(record)
