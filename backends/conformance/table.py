"""A tally for people; refuses to hide what was excused."""

from collections.abc import Iterator

from .tally import Tally

MOST_FAILURES = 5


def table(tally: Tally) -> str:
    """Counts, near-ties by decision, and the first unexplained differences."""
    return "\n".join(_lines(tally)) + "\n"


def _lines(tally: Tally) -> Iterator[str]:
    yield _line("batches", tally.num_batches)
    if tally.num_unsupported:
        yield _line("unsupported", tally.num_unsupported)
    yield _line("requests", tally.num_requests)
    yield _line("decisions", tally.num_decisions)
    yield _line("differences", tally.num_differences)
    yield _line("near-ties", tally.near_ties.total())
    for decision, count in sorted(tally.near_ties.items()):
        yield _line(f"  {decision}", count)
    yield _line("unexplained", len(tally.failures))
    for name, difference in tally.failures[:MOST_FAILURES]:
        yield f"  {difference}\n    {name}"
    yield f"near-ties per decision: {tally.near_tie_rate:.1e} (allowed: 1e-5)"
    yield "conformant" if tally.is_conformant else "NOT conformant"


def _line(name: str, count: int) -> str:
    return f"{name:<42}{count:>14,}"
