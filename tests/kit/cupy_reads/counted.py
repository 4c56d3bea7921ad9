"""`python -m kit.cupy_reads.counted`: what CuPy's kernels read of memory, by Nsight Compute.

It refuses to guess where counters cannot be read.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from acceptor.core import UnavailableError
from kit.cupy_reads.record import record_of, write
from kit.cupy_reads.tables import bytes_table

FROM_MEMORY = "dram__bytes_read.sum"
FROM_CACHE = "lts__t_sectors_srcunit_tex_op_read.sum"
PASSES = "profiler__replayer_passes"
SECTOR_BYTES = 32
OPTIONS = (
    *("--profile-from-start", "off"),
    *("--clock-control", "none"),
    *("--cache-control", "none"),  # it would empty the cache between two launches of a call
    *("--metrics", f"{FROM_MEMORY},{FROM_CACHE}"),
    *("--csv", "--page", "raw", "--print-units", "base"),
)


def watch(arguments: Sequence[str], folder: Path) -> tuple[list[dict[str, Any]], str]:
    """What the subject says it ran, and what the profiler says of it.

    Raises:
        UnavailableError: there is no profiler, or it may not read counters.
    """
    if shutil.which("ncu") is None:
        raise UnavailableError(
            "counted: needs ncu, Nsight Compute, which comes with CUDA's toolkit"
        )
    cases, log = folder / "cases.json", folder / "ncu.csv"
    subject = (sys.executable, "-m", "kit.cupy_reads.subject", str(cases), *arguments)
    finished = subprocess.run(["ncu", *OPTIONS, "--log-file", str(log), *subject], check=False)
    said = log.read_text(encoding="utf-8") if log.exists() else ""
    if finished.returncode != 0 or not cases.exists() or "==ERROR==" in said:
        errors = " ".join(line for line in said.splitlines() if "==ERROR==" in line)
        raise UnavailableError(
            f"counted: expected ncu to read the GPU's counters, got {finished.returncode}: {errors}"
        )
    return json.loads(cases.read_text(encoding="utf-8")), said


def launches(said: str) -> Iterator[dict[str, Any]]:
    """A kernel's name, and what it read from memory and from the level-2 cache, in bytes.

    Raises:
        UnavailableError: a kernel ran several times for its counters, and was warm the second time.
    """
    table = [line for line in said.splitlines() if line.startswith('"')]
    for row in csv.DictReader(table):
        if row["ID"]:  # the row of units has none
            if row[PASSES] != "1":
                raise UnavailableError(f"counted: expected one pass a kernel, got {row[PASSES]}")
            memory, sectors = (
                int(row[name].replace(",", "")) for name in (FROM_MEMORY, FROM_CACHE)
            )
            name = row["Kernel Name"].split("(", maxsplit=1)[0]
            yield {"kernel": name, "memory": memory, "cache": SECTOR_BYTES * sectors}


def joined(cases: Sequence[dict[str, Any]], said: str) -> list[dict[str, Any]]:
    """Each case with what its kernels read together.

    Raises:
        UnavailableError: the profiler saw other kernels.
    """
    seen = list(launches(said))
    names = [kernel for case in cases for kernel in case["kernels"]]
    if [launch["kernel"] for launch in seen] != names:
        raise UnavailableError(f"counted: expected {len(names)} launches, got {len(seen)} others")
    rest = iter(seen)
    lines = []
    for case in cases:
        own = [next(rest) for _ in case["kernels"]]
        read = {what: sum(launch[what] for launch in own) for what in ("memory", "cache")}
        lines.append({**case, **read})
    return lines


def main() -> int:
    """Count, print, write."""
    parser = argparse.ArgumentParser(prog="python -m kit.cupy_reads.counted")
    parser.add_argument("--requests", action="append", default=[], help="repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE")
    wanted = parser.parse_args()
    start = time.monotonic()
    sizes = [word for size in wanted.requests for word in ("--requests", size)]
    with tempfile.TemporaryDirectory() as folder:
        lines = joined(*watch(sizes, Path(folder)))
    record = record_of(lines, start)
    sys.stdout.write(bytes_table(record))
    if wanted.json is not None:
        write(record, wanted.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
