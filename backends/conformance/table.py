"""A tally for people; refuses to hide what was excused."""

from collections.abc import Iterable, Iterator

from .beside import Beside
from .tally import MOST_NEAR_TIES, Tally

MOST_FAILURES = 5
MOST_EXCUSES = 20


def table(tally: Tally) -> str:
    """Counts, near-ties by decision and one by one, and the first unexplained differences.

    Those that are left out are in the record.
    """
    lines = [*_lines(_counts(tally)), *_told(tally), f"near-ties per decision: {_rate(tally)}"]
    lines.append("conformant" if tally.is_conformant else "NOT conformant")
    return "\n".join(lines) + "\n"


def table_beside(backend: str, beside: Beside) -> str:
    """The second backend's table, and one of what is between the two."""
    lines = [*_lines(_counts_between(beside.between)), *_told(beside.between)]
    agree = "agree" if not beside.between.failures else "DISAGREE"
    return "\n".join(
        [
            f"\n{beside.backend}, on the same batches:",
            table(beside.tally),
            f"{backend} and {beside.backend}, compared with each other:",
            *lines,
            f"{agree}\n",
        ]
    )


def markdown(tally: Tally, backend: str = "", beside: Beside | None = None) -> str:
    """The counts for a page; with a second backend its own and those between the two, too."""
    tables = [_rows(_counts(tally), tally)]
    if beside is not None:
        tables += [
            f"Backend `{beside.backend}`, on the same batches:\n",
            _rows(_counts(beside.tally), beside.tally),
            f"`{backend}` and `{beside.backend}` compared with each other:\n",
            _rows(_counts_between(beside.between)),
        ]
    return "\n".join(tables)


def _rows(counts: Iterable[tuple[str, int]], rated: Tally | None = None) -> str:
    rows = [f"| {name.strip()} | {count:,} |" for name, count in counts]
    if rated is not None:
        rows.append(f"| near-ties per decision | {_rate(rated)} |")
    return "\n".join(["| | |", "| --- | --- |", *rows]) + "\n"


def _lines(counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    return (f"{name:<42}{count:>14,}" for name, count in counts)


def _told(tally: Tally) -> Iterator[str]:
    told = tally.excuses[:MOST_EXCUSES] + tally.failures[:MOST_FAILURES]
    return (f"  {difference}\n    {name}" for name, difference in told)


def _counts(tally: Tally) -> Iterator[tuple[str, int]]:
    yield "batches", tally.num_batches
    if tally.num_unsupported:
        yield "unsupported", tally.num_unsupported
    yield "requests", tally.num_requests
    yield "decisions", tally.num_decisions
    yield "differences", tally.num_differences
    yield from _verdicts(tally)


def _counts_between(between: Tally) -> Iterator[tuple[str, int]]:
    yield "batches compared", between.num_batches
    if between.num_unsupported:
        yield "unsupported by one of them", between.num_unsupported
    yield "requests compared", between.num_requests
    yield "decisions compared", between.num_decisions
    yield "differences between the backends", between.num_differences
    yield from _verdicts(between)


def _verdicts(tally: Tally) -> Iterator[tuple[str, int]]:
    yield "near-ties", tally.near_ties.total()
    for decision, count in sorted(tally.near_ties.items()):
        yield f"  {decision}", count
    if tally.num_repeated:
        yield "  of these, a race that is counted already", tally.num_repeated
    yield "unexplained", len(tally.failures)


def _rate(tally: Tally) -> str:
    return f"{tally.near_tie_rate:.1e} (allowed: {MOST_NEAR_TIES:.0e})"
