"""The tables of speed and GPU runs say what the records say, and the records reach the goals."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acceptor.app.bench.kernels.main import reread
from acceptor.app.bench.kernels.table import markdown
from acceptor.backends.conformance import Tally
from acceptor.backends.conformance.record import Record
from kit.gpu_record import as_record
from kit.gpu_runs import keep, table
from lab.engine_speed import as_markdown, share_of_limit

DATA = Path(__file__).parents[2] / "docs" / "data"


def read(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return record


ENGINE = read("engine.json")
ROWS = {(row["num_reqs"], row["num_spec_tokens"]): row for row in ENGINE["rows"]}


def test_the_tables_are_what_the_records_say() -> None:
    expected = {
        "gpu.md": table(DATA),
        "kernels.md": markdown(reread(DATA / "kernels.json")),
        "engine.md": as_markdown(ENGINE),
    }
    for name, text in expected.items():
        assert (DATA / name).read_text(encoding="utf-8") == text, name


@pytest.mark.parametrize(
    ("concurrency", "num_spec_tokens", "goal"), [(1, 3, 0.75), (1, 0, 0.8), (16, 3, 0.64)]
)
def test_a_step_reaches_its_share_of_limit(
    concurrency: int, num_spec_tokens: int, goal: float
) -> None:
    assert share_of_limit(ENGINE, ROWS[concurrency, num_spec_tokens]) >= goal


def test_speculation_pays_off_and_verification_takes_little() -> None:
    speculative, plain = (ROWS[1, drafts]["tokens_per_second"] for drafts in (3, 0))
    assert speculative >= 1.6 * plain
    assert speculative >= 10 * ENGINE["hugging_face"]["assisted"]
    for row in ENGINE["rows"]:
        assert row["verification_ms"] <= 0.03 * row["step_ms"]


def test_the_soak_lost_and_confused_nothing_and_kept_its_memory() -> None:
    soak = read("soak.json")
    assert (soak["lost"], soak["wrong"]) == (0, 0)
    assert sum(soak["ends"].values()) == soak["num_requests"] == 100_000
    assert max(soak["memory_bytes"]) < 1.1 * min(soak["memory_bytes"])
    assert soak["resident_kilobytes"][-1] - soak["resident_kilobytes"][0] < 1024


@pytest.mark.parametrize(
    "path",
    [*DATA.glob("equivalence*.json"), *DATA.glob("conformance*.json")],
    ids=lambda path: path.stem,
)
def test_the_tables_of_backends_are_what_the_records_say(path: Path) -> None:
    record = Record.read(path)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == record.page
    assert record.is_conformant


def test_a_run_of_tests_is_recorded_with_its_failures(tmp_path: Path) -> None:
    failed = SimpleNamespace(nodeid="a.py::b", longreprtext="def b():\n>   x\nE   assert 1 == 2")
    skipped = SimpleNamespace(longrepr=("a.py", 3, "Skipped: needs cupy"))
    record = as_record({"passed": [0, 0], "failed": [failed], "skipped": [skipped] * 2}, 1.0)
    assert record["counts"] == {"passed": 2, "failed": 1, "error": 0, "skipped": 2}
    assert record["failures"] == {"a.py::b": "E   assert 1 == 2"}
    assert record["skipped"] == {"Skipped: needs cupy": 2}
    keep(tmp_path / "gpu.json", "tests", record)
    assert "2 passed, 1 failed, 2 skipped" in table(tmp_path)


@pytest.mark.parametrize("others", [(), ("other",)])
def test_two_backends_on_the_same_batches_have_three_rows(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    record = Record.empty(["one", *others], "cpu")
    found = [Tally(num_batches=7 - place) for place in range(len(record.tallies))]
    record.including(1, found).write(tmp_path / "equivalence-one.json")
    rows = [row.split(" | ") for row in table(tmp_path).splitlines()[2:]]
    told = [(row[0].removeprefix("| "), row[-1].partition(" ")[0]) for row in rows]
    expected = [("equivalence, one", "7")]
    if others:
        expected += [("equivalence, other on the same batches", "6"), ("one and other", "5")]
    assert told == expected
    assert ("BACKEND=one BESIDE=other" in rows[0][1]) == bool(others)


@pytest.mark.parametrize("findings", [0, 3, None])
def test_a_sanitizer_that_did_not_end_is_not_clean(tmp_path: Path, findings: int | None) -> None:
    outcomes = [{"tool": "none", "findings": 0}, {"tool": "racecheck", "findings": findings}]
    machine = {"device": "a GPU", "torch": "2"}
    record = {"backend": "cupy", "date": "2026-01-02", "machine": machine, "outcomes": outcomes}
    for name in ("sanitize triton", "sanitize cupy"):
        keep(tmp_path / "gpu.json", name, record | {"backend": name.split()[1]})
    expected = "did not end" if findings is None else str(findings)
    assert table(tmp_path).count(f"racecheck {expected} |") == 2
