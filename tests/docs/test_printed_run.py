"""What pages say of a run that left no record is what it printed."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PRINTED = (DOCS / "data" / "printed-b8569fd.txt").read_text(encoding="utf-8")
PERFORMANCE = (DOCS / "performance.md").read_text(encoding="utf-8")
SERVING = (DOCS / "serving-speed.md").read_text(encoding="utf-8")
SIZES = ("1", "16", "64", "256")
FILTERED = "probabilistic, temperature 0.8, top-k 50, top-p 0.9"


def _said(page: str, pattern: str) -> tuple[str, ...]:
    found = re.search(pattern.replace(" ", r"\s+"), page, re.DOTALL)
    assert found is not None, pattern
    return found.groups()


def _goals() -> dict[tuple[str, str, str], float]:
    rows = re.findall(r"^\| (.+) \| (triton|cupy) \|(.+)\|$", PERFORMANCE, re.MULTILINE)
    return {
        (size, label, backend): float(goal.strip(" *"))
        for label, backend, goals in rows
        for size, goal in zip(SIZES, goals.split("|"), strict=True)
    }


def test_all_goals_but_the_one_that_is_named_were_met() -> None:
    lines = re.findall(r"^ *(\d+)  (.+?) +(triton|cupy) +([\d.]+) +[\d.]+$", PRINTED, re.MULTILINE)
    took = {(size, label, backend): float(time) for size, label, backend, time in lines}
    goals = _goals()
    assert took.keys() == goals.keys()
    assert [key for key in goals if took[key] > goals[key]] == [("256", "greedy", "cupy")]
    (met,) = _said(PERFORMANCE, r"goal in bold was met: \*\*(\d+)\*\* at R = 256")
    (missed,) = _said(PERFORMANCE, r"by a hair, greedy at R = 256: ([\d.]+),")
    assert float(met) == took["256", FILTERED, "cupy"]
    assert float(missed) == took["256", "greedy", "cupy"]


def test_what_ran_is_what_was_printed() -> None:
    passed, calls = _said(PERFORMANCE, r"(\d+) GPU tests passed, .+? nothing in (\d+) calls")
    assert f"engine: {passed} passed" in PRINTED
    assert PRINTED.count(f"0 found, 0 of {calls} calls differ") == 4
    assert "near-ties per decision: 0.0e+00" in PRINTED


def test_the_engine_s_speeds_are_those_that_were_printed() -> None:
    rows = re.findall(r"^\| (1|16) \| ([03]) \| (\d+) .+ (\d+)% \|$", PRINTED, re.MULTILINE)
    speeds = {(batch, drafts): speed for batch, drafts, speed, _ in rows}
    shares = {(batch, drafts): share for batch, drafts, _, share in rows}
    ratio, fast, plain = _said(SERVING, r"\*\*([\d.]+) times\*\*: (\d+) tokens/s against (\d+)")
    assert (fast, plain) == (speeds["1", "3"], speeds["1", "0"])
    assert f"{int(fast) / int(plain):.2f}" == ratio
    assert _said(SERVING, r"(\d+) % of bandwidth for one request with drafts, (\d+) without") == (
        shares["1", "3"],
        shares["1", "0"],
    )
    alone, many, step = _said(SERVING, r"(\d+) for 16 without; (\d+), ([\d.]+) ms a step")
    assert (alone, many) == (shares["16", "0"], shares["16", "3"])
    assert f"| {step} |" in PRINTED
