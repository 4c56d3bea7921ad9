"""A tally for people; refuses to hide what was excused."""

from collections.abc import Iterator

from .tally import MOST_NEAR_TIES, Tally

MOST_FAILURES = 5
MOST_EXCUSES = 20


def table(tally: Tally) -> str:
    """Counts, near-ties by decision and one by one, and the first unexplained differences.

    Those that are left out are in the record.
    """
    lines = [f"{name:<42}{count:>14,}" for name, count in _counts(tally)]
    told = tally.excuses[:MOST_EXCUSES] + tally.failures[:MOST_FAILURES]
    lines += [f"  {difference}\n    {name}" for name, difference in told]
    lines.append(f"near-ties per decision: {_rate(tally)}")
    lines.append("conformant" if tally.is_conformant else "NOT conformant")
    return "\n".join(lines) + "\n"


def markdown(tally: Tally) -> str:
    """The counts for a page."""
    rows = [f"| {name.strip()} | {count:,} |" for name, count in _counts(tally)]
    rows.append(f"| near-ties per decision | {_rate(tally)} |")
    return "\n".join(["| | |", "| --- | --- |", *rows]) + "\n"


def _counts(tally: Tally) -> Iterator[tuple[str, int]]:
    yield "batches", tally.num_batches
    if tally.num_unsupported:
        yield "unsupported", tally.num_unsupported
    yield "requests", tally.num_requests
    yield "decisions", tally.num_decisions
    yield "differences", tally.num_differences
    yield "near-ties", tally.near_ties.total()
    for decision, count in sorted(tally.near_ties.items()):
        yield f"  {decision}", count
    if tally.num_repeated:
        yield "  of these, a race that is counted already", tally.num_repeated
    yield "unexplained", len(tally.failures)


def _rate(tally: Tally) -> str:
    return f"{tally.near_tie_rate:.1e} (allowed: {MOST_NEAR_TIES:.0e})"
