"""What a tool reported, each finding once."""

import re
from collections.abc import Iterator, Sequence

MOST_LINES = 40
LINES_OF_A_REPORT = 4
"""What was found, where, and by whom; below are backtraces of the host."""

CHANGING = re.compile(r"\(\d+,\d+,\d+\)|\[\d+ hazards\]|(?<=\s)0x[0-9a-f]+")
"""Threads, counts and addresses: what differs between reports of one finding. Offsets stay."""


def distinct(output: str) -> tuple[str, ...]:
    """The first lines of every different report, in order, with how many there were of it."""
    counts: dict[str, int] = {}
    firsts: dict[str, Sequence[str]] = {}
    for report in _reports(output):
        finding = CHANGING.sub("...", "\n".join(report[:LINES_OF_A_REPORT]))
        counts[finding] = counts.get(finding, 0) + 1
        firsts.setdefault(finding, report[:LINES_OF_A_REPORT])
    lines = [line for finding, first in firsts.items() for line in _counted(first, counts[finding])]
    return tuple(lines[:MOST_LINES])


def _reports(output: str) -> Iterator[list[str]]:
    """A line with those that are indented below it; a program's own lines stand alone."""
    report: list[str] = []
    for line in filter(lambda line: line.strip("= "), output.splitlines()):
        if report and not re.match(r"=+ {2,}", line):
            yield report
            report = []
        report.append(line)
    if report:
        yield report


def _counted(report: Sequence[str], count: int) -> Iterator[str]:
    head, *rest = report
    yield head if count == 1 else f"{count} times: {head}"
    yield from rest
