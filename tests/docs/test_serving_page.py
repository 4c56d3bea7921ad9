"""What the pages about serving say of figures is what the records say."""

import json
import re
from pathlib import Path

import pytest

from lab.engine_speed import as_markdown, share_of_limit

DOCS = Path(__file__).parents[2] / "docs"
RECORD = json.loads((DOCS / "data" / "engine.json").read_text(encoding="utf-8"))
ROWS = {(row["num_reqs"], row["num_spec_tokens"]): row for row in RECORD["rows"]}
PAGE = (DOCS / "serving-speed.md").read_text(encoding="utf-8")


def _said(pattern: str) -> str:
    found = re.search(pattern.replace(" ", r"\s+"), PAGE)
    assert found is not None, pattern
    return found[1]


def test_the_tables_of_the_engine_are_what_the_record_says() -> None:
    assert (DOCS / "data" / "engine.md").read_text(encoding="utf-8") == as_markdown(RECORD)


@pytest.mark.parametrize(
    ("batch", "pattern"),
    [
        ((1, 3), r"reached by one request with drafts \((\d+) %\)"),
        ((1, 0), r"without drafts by one request \((\d+) %\)"),
        ((16, 0), r"and by 16 \((\d+) %\)"),
        ((16, 3), r"reached by 16 requests with drafts, too \((\d+) %:"),
    ],
)
def test_shares_of_bandwidth_are_the_record_s_and_reach_the_goal(
    batch: tuple[int, int], pattern: str
) -> None:
    share = share_of_limit(RECORD, ROWS[batch])
    assert _said(pattern) == f"{100 * share:.0f}"
    assert share >= 0.75


def test_steps_and_ratios_are_the_record_s() -> None:
    step = ROWS[16, 3]["step_ms"]
    assert _said(r"a step takes ([\d.]+) ms") == f"{step:.2f}"
    speeds = [ROWS[1, drafts]["tokens_per_second"] for drafts in (3, 0)]
    ratio = speeds[0] / speeds[1]
    assert _said(r"one request, is reached: ([\d.]+) times") == f"{ratio:.2f}"
    assert ratio >= 1.8


def test_the_goal_is_reached_by_the_reading_of_the_other_benchmark_too() -> None:
    kernels = json.loads((DOCS / "data" / "kernels.json").read_text(encoding="utf-8"))
    best = RECORD["bandwidth"]
    assert _said(r"reads of the GPU's memory, ([\d.]+) TB/s") == f"{best / 1e12:.2f}"
    assert _said(r"benchmark of kernels read ([\d.]+) of") == f"{kernels['bandwidth'] / 1e12:.2f}"
    share = share_of_limit(RECORD, ROWS[16, 3]) * best / kernels["bandwidth"]
    assert _said(r"16 requests would be ([\d.]+) %") == f"{100 * share:.1f}"
    assert share >= 0.75


def test_what_is_said_of_a_hundred_thousand_requests_is_the_record_s() -> None:
    soak = json.loads((DOCS / "data" / "soak.json").read_text(encoding="utf-8"))
    page = " ".join((DOCS / "serving.md").read_text(encoding="utf-8").split())
    ends, memory, resident = (soak[key] for key in ("ends", "memory_bytes", "resident_kilobytes"))
    assert (soak["lost"], soak["wrong"]) == (0, 0)
    assert sum(ends.values()) == soak["num_requests"] == 100_000
    assert f"Run on {soak['date']}" in page
    assert (
        f"({ends['length']:,} whole, {ends['error']:,} with their error, "
        f"{ends['cancelled']:,} cancelled)"
    ) in page
    low, high = (round(least_or_most(memory) / 1000) for least_or_most in (min, max))
    assert f"stayed between {low} and {high} KB" in page
    assert f"grew by {(resident[-1] - resident[0]) / 1024:.1f} MB" in page


def test_verification_takes_as_little_as_is_said() -> None:
    limit = float(_said(r"takes less than ([\d.]+) % of a step")) / 100
    for row in RECORD["rows"]:
        assert row["verification_ms"] < limit * row["step_ms"]
