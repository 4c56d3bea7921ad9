"""The pages about speed and GPU runs show what the records say."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from acceptor.app.bench.kernels.results import Run
from acceptor.app.bench.kernels.table import markdown
from acceptor.backends.conformance import Tally
from acceptor.backends.conformance.beside import Beside
from acceptor.backends.conformance.record import Record
from acceptor.backends.conformance.table import markdown as conformance_tables
from kit.gpu_record import as_record
from kit.gpu_runs import table

DATA = Path(__file__).parents[2] / "docs" / "data"
RUN = Run.read(DATA / "kernels.json")
SIZES = (1, 16, 64, 256)


def test_the_table_of_gpu_runs_is_what_the_records_say() -> None:
    assert (DATA / "gpu-runs.md").read_text(encoding="utf-8") == table(DATA)


def test_the_tables_of_kernels_are_what_the_record_says() -> None:
    assert (DATA / "kernels.md").read_text(encoding="utf-8") == markdown(RUN)


def test_the_goals_in_bold_are_those_that_the_record_misses() -> None:
    page = (DATA.parent / "performance.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| (.+) \| (triton|cupy) \|(.+)\|$", re.MULTILINE)
    goals = {(label, backend): cells.split("|") for label, backend, cells in row.findall(page)}
    for line, column in ((line, SIZES.index(line.workload.num_reqs)) for line in RUN.lines):
        for cell in line.cells:
            took = cell.median("graph_cold")
            goal = goals[line.workload.label, cell.backend][column].strip()
            limit = float(goal.strip("*"))
            assert took is not None
            assert (took > limit) == goal.startswith("**"), (line.workload, cell.backend, took)
            assert took <= 1.06 * limit
    eager = re.search(r"has a goal of (\S+) with Triton and (\S+) with CuPy", page)
    assert eager is not None
    for cell, goal in zip(RUN.lines[0].cells, eager.groups(), strict=True):
        took = cell.median("eager_cold")
        assert took is not None
        assert (took > float(goal.strip("*"))) == goal.startswith("**"), (cell.backend, took)


@pytest.mark.parametrize(
    "path",
    [*sorted(DATA.glob("equivalence-*.json")), *sorted(DATA.glob("*-on-host*.json"))],
    ids=lambda path: path.stem,
)
def test_the_tables_of_backends_are_what_the_records_say(path: Path) -> None:
    record = Record.read(path)
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    about, _, tables = page.partition(":\n\n")
    assert about.startswith(f"Backend `{record.backend}` on {', '.join(record.machines)}")
    assert tables == conformance_tables(record.tally, record.backend, record.beside)


def test_a_run_of_tests_is_recorded_with_its_failures(tmp_path: Path) -> None:
    failed = SimpleNamespace(nodeid="a.py::b", longreprtext="def b():\n>   x\nE   assert 1 == 2")
    skipped = SimpleNamespace(longrepr=("a.py", 3, "Skipped: needs cupy"))
    record = as_record({"passed": [0, 0], "failed": [failed], "skipped": [skipped] * 2}, 1.0)
    assert record["counts"] == {"passed": 2, "failed": 1, "error": 0, "skipped": 2}
    assert record["failures"] == {"a.py::b": "E   assert 1 == 2"}
    assert record["skipped"] == {"Skipped: needs cupy": 2}
    (tmp_path / "gpu-tests.json").write_text(json.dumps(record))
    assert "2 passed, 1 failed, 2 skipped" in table(tmp_path)


@pytest.mark.parametrize("beside", [None, "other"])
def test_two_backends_on_the_same_batches_have_three_rows(
    tmp_path: Path, beside: str | None
) -> None:
    second = None if beside is None else Beside(beside, Tally(num_batches=6), Tally(num_batches=5))
    Record("one", "cpu", (), Tally(num_batches=7), second).write(tmp_path / "equivalence-one.json")
    rows = [row.split(" | ") for row in table(tmp_path).splitlines()[2:]]
    told = [(row[0].removeprefix("| "), row[-1].partition(" ")[0]) for row in rows]
    expected = [("equivalence, one", "7")]
    if beside is not None:
        expected += [("equivalence, other on the same batches", "6")]
        expected += [("one and other, with each other", "5")]
    assert told == expected
    assert ("BACKEND=one BESIDE=other" in rows[0][1]) == (beside is not None)


@pytest.mark.parametrize("findings", [0, 3, None])
def test_a_sanitizer_that_did_not_end_is_not_clean(tmp_path: Path, findings: int | None) -> None:
    outcomes = [{"tool": "none", "findings": 0}, {"tool": "racecheck", "findings": findings}]
    machine = {"device": "a GPU", "torch": "2"}
    record = {"backend": "cupy", "date": "2026-01-02", "machine": machine, "outcomes": outcomes}
    (tmp_path / "sanitize-cupy.json").write_text(json.dumps(record))
    expected = "did not end" if findings is None else str(findings)
    assert f"racecheck {expected} |" in table(tmp_path)
