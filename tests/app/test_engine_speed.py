"""The engine's measurement reaches every part, and its table adds up."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab.engine_speed import REHEARSAL, as_markdown, main


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
