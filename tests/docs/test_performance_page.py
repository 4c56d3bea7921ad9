"""The tables of speed and GPU runs say what the records say, and the records reach the goals."""

import json
from pathlib import Path
from typing import Any

import pytest

from acceptor.app.bench.kernels.bounds import BOUNDS, MORE_WORK
from acceptor.app.bench.kernels.main import reread
from acceptor.app.bench.kernels.table import markdown
from acceptor.backends.conformance.record import Record
from kit.gpu import table
from lab.engine_speed import as_markdown, share_of_limit

DATA = Path(__file__).parents[2] / "docs" / "data"


def read(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return record


ENGINE = read("engine.json")
ROWS = {(row["num_reqs"], row["num_spec_tokens"]): row for row in ENGINE["rows"]}


def test_the_tables_are_what_the_records_say() -> None:
    expected = {
        "gpu.md": table(read("gpu.json")),
        "kernels.md": markdown(reread(DATA / "kernels.json")),
        "engine.md": as_markdown(ENGINE),
    }
    for name, text in expected.items():
        assert (DATA / name).read_text(encoding="utf-8") == text, name


def test_the_page_names_the_bounds_that_the_worst_table_is_held_to() -> None:
    page = (DATA.parent / "performance.md").read_text(encoding="utf-8").lower()
    for backend, bounds in BOUNDS.items():
        assert f"| {backend} | {' | '.join(map(str, bounds.values()))} |" in page
        assert list(bounds) == [1, 16, 64, 256]
    assert f"{MORE_WORK} times" in page


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
    assert (soak["unfinished"], soak["wrong"]) == (0, 0)
    assert sum(soak["ends"].values()) == soak["num_requests"] == 100_000
    first, *_, last = soak["resident_kilobytes"]
    assert last <= 1.05 * first


@pytest.mark.parametrize(
    "path",
    [*DATA.glob("equivalence*.json"), *DATA.glob("conformance*.json")],
    ids=lambda path: path.stem,
)
def test_the_tables_of_backends_are_what_the_records_say(path: Path) -> None:
    record = Record.read(path)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == record.page
    assert record.is_conformant
