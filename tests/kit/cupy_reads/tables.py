"""`python -m kit.cupy_reads.tables`: tables of what was timed and counted, from docs/data.

It refuses to know anything that no record says.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

from acceptor.app.bench.kernels.workload import Workload
from acceptor.core import Recipe

DATA = Path(__file__).parents[3] / "docs" / "data"
NUM_DRAFTS = 3
Line = dict[str, Any]
Cell = tuple[str, str, int, str]
"""The first two columns' words, the size of the batch, and what stands there."""


def times_table(record: dict[str, Any]) -> str:
    """Microseconds of each kernel in its fastest size, in bold of the chosen one."""
    return _about(record) + _render(_times(record["lines"]))


def _times(lines: list[Line]) -> Iterator[Cell]:
    for line in lines:
        name, size, drafts = label(line), line["num_reqs"], line["num_spec_tokens"]
        if drafts < NUM_DRAFTS:
            yield name, "wide, without drafts", size, f"{median(line['times']['wide']):.1f}"
            continue
        for kernel in dict.fromkeys(map(kernel_of, line["times"])):
            yield name, kernel, size, _took(line, kernel)


def label(line: Line) -> str:
    """As the benchmark's tables call it."""
    return Workload(policy=line["policy"], recipe=Recipe(**line["recipe"])).label


def kernel_of(way: str) -> str:
    """Of a way's name, which may end in a size."""
    return way.split(" ", maxsplit=1)[0]


def fastest(line: Line, kernel: str) -> str:
    """A kernel's fastest way."""
    ways: list[str] = [way for way in line["times"] if kernel_of(way) == kernel]
    return min(ways, key=lambda way: median(line["times"][way]))


def _took(line: Line, kernel: str) -> str:
    best, chosen = fastest(line, kernel), line["chosen"]
    if kernel_of(chosen) != kernel:
        return _time(line, best)
    return f"**{_time(line, chosen)}**" + (f", {_time(line, best)}" if best != chosen else "")


def _time(line: Line, way: str) -> str:
    size = way.removeprefix(kernel_of(way)).strip()
    return f"{median(line['times'][way]):.1f}" + (f" ({size})" if size else "")


def bytes_table(record: dict[str, Any]) -> str:
    """Shares of the bytes of all rows: read from memory, of rows judged, asked of the cache."""
    return _about(record) + _render(_shares(record["lines"]))


def _shares(lines: list[Line]) -> Iterator[Cell]:
    alike: dict[tuple[str, str, int], list[Line]] = {}
    for line in lines:
        key = label(line), kernel_of(line["way"]), line["num_reqs"]
        alike.setdefault(key, []).append(line)
    for (name, kernel, size), some in alike.items():
        read, judged, asked = (share(some, what) for what in ("memory", "judged", "cache"))
        text = f"{read:.2f}, {judged:.2f}, {asked:.2f}"
        yield name, kernel, size, f"**{text}**" if some[0]["chosen"] else text


def share(lines: Iterable[Line], what: str) -> float:
    """Of the bytes of all rows, on the average."""
    shares: list[float] = [line[what] / line["every"] for line in lines]
    return mean(shares)


def _render(cells: Iterable[Cell]) -> str:
    by_label: dict[str, dict[str, dict[int, str]]] = {}
    for name, way, size, text in cells:
        by_label.setdefault(name, {}).setdefault(way, {})[size] = text
    sizes = sorted({size for ways in by_label.values() for row in ways.values() for size in row})
    head = f"| | | {' | '.join(f'R = {size}' for size in sizes)} |\n"
    body = [
        f"| {name} | {way} | {' | '.join(row.get(size, '–') for size in sizes)} |\n"
        for name, ways in by_label.items()
        for way, row in ways.items()
    ]
    return head + "|---" * (len(sizes) + 2) + "|\n" + "".join(body)


def _about(record: dict[str, Any]) -> str:
    machine = record["machine"]
    where = f"{machine['device']}, driver {machine['driver']}, torch {machine['torch']}"
    return f"{record['date']}; {where}.\n\n"


PAGES = {"cupy-ways": times_table, "cupy-reads": bytes_table}


def main() -> int:
    """Write the tables."""
    for name, table in PAGES.items():
        record = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
        (DATA / f"{name}.md").write_text(table(record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
