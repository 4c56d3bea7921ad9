"""`python -m kit.gpu_runs`: one table of what ran on GPUs, from the records in docs/data."""

import json
import sys
from collections.abc import Iterator
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "docs" / "data"
HEADER = "| what | command | where | when | outcome |\n|---|---|---|---|---|\n"


def keep(path: Path, name: str, record: dict[str, Any]) -> None:
    """Put a record into gpu.json under its name; processes that do so at once take turns."""
    with path.open("a+", encoding="utf-8") as file:
        flock(file, LOCK_EX)
        file.seek(0)
        content = json.loads(file.read() or "{}") | {name: record}
        file.truncate(0)
        json.dump(dict(sorted(content.items())), file, indent=1, ensure_ascii=False)
        file.write("\n")


def table(folder: Path) -> str:
    """A row for each record that is there."""
    return HEADER + "".join(f"| {' | '.join(row)} |\n" for row in _rows(folder))


def _rows(folder: Path) -> Iterator[tuple[str, ...]]:
    for name, record in _read(folder / "gpu.json").items():
        if name == "tests":
            yield "tests", "`make test-gpu`", *_machine(record), _tests(record)
        else:
            backend = record["backend"]
            what, command = f"compute-sanitizer, {backend}", f"`make sanitize BACKEND={backend}`"
            yield what, command, *_machine(record), _sanitized(record)
    for path in sorted(folder.glob("equivalence-*.json")):
        yield from _equivalence(_read(path))
    kernels = _read(folder / "kernels.json")
    if kernels:
        command = "`acceptor bench kernels --headline --worst`"
        yield "speed", command, *_machine(kernels), _timed(kernels)


def _equivalence(record: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Of a backend; of a second one, and of the two with each other, where both ran."""
    backend, *others = record["backends"]
    chosen = f"BACKEND={backend}" + "".join(f" BESIDE={other}" for other in others)
    about = f"`make equivalence {chosen}`", record["machine"], record["date"]
    what = [f"equivalence, {backend}"]
    for other in others:
        what += [f"equivalence, {other} on the same batches", f"{backend} and {other}"]
    for name, tally in zip(what, record["tallies"], strict=True):
        yield name, *about, _equal(tally)


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _machine(record: dict[str, Any]) -> tuple[str, str]:
    machine = record["machine"]
    driver = f", driver {machine['driver']}" if "driver" in machine else ""
    return f"{machine['device']}{driver}, torch {machine['torch']}", record["date"]


def _tests(record: dict[str, Any]) -> str:
    counts = record["counts"]
    failed = counts["failed"] + counts["error"]
    return f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped"


def _equal(tally: dict[str, Any]) -> str:
    return (
        f"{tally['num_batches']:,} batches, {tally['num_requests']:,} requests, "
        f"{tally['num_decisions']:,} decisions: {len(tally['failures'])} unexplained differences, "
        f"{sum(tally['near_ties'].values())} near-ties"
    )


def _sanitized(record: dict[str, Any]) -> str:
    found = {}
    for outcome in record["outcomes"]:
        if outcome["tool"] != "none":
            count = outcome["findings"]
            found[outcome["tool"]] = "did not end" if count is None else str(count)
    return "findings: " + ", ".join(f"{tool} {count}" for tool, count in found.items())


def _timed(record: dict[str, Any]) -> str:
    cells = [
        cell for line in (*record["lines"], *record.get("worst", ())) for cell in line["cells"]
    ]
    missing = sum(cell["times"] is None for cell in cells)
    different = sum(cell["num_different"] for cell in cells)
    checked = sum(cell["num_checked"] for cell in cells)
    return (
        f"{len(cells) - missing} of {len(cells)} cells; tokens of {different} of {checked} "
        "compared requests differ from the reference's"
    )


if __name__ == "__main__":
    (DATA / "gpu.md").write_text(table(DATA), encoding="utf-8")
    sys.stdout.write(table(DATA))
