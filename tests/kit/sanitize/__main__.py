"""`python -m kit.sanitize`: compute-sanitizer's tools over a few calls of a fused backend.

Writes each tool's outcome, and ends with 0 only if every tool ran and found nothing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, frozen

from acceptor.app.bench.kernels.machine import describe
from acceptor.core import UnavailableError
from kit.gpu_runs import keep
from kit.sanitize.reports import distinct
from kit.sanitize.subset import KINDS

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FINDINGS = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
CALLS = re.compile(r"(\d+) calls, (\d+) differ")

NUM_BARRIERS = 32
"""More mbarriers than any block has. Left alone, racecheck and synccheck size their tables by the
number that the compiler names, which is another one where mbarriers are made in a loop."""
OPTIONS = dict.fromkeys(("racecheck", "synccheck"), ("--num-cuda-barriers", str(NUM_BARRIERS)))


@frozen
class Outcome:
    """What one tool said.

    Attributes:
        tool: its name; "none" is the same run unwatched.
        findings: errors or hazards; None if it did not come to its summary.
        num_calls, num_different: of the run; None if it did not end.
        seconds: how long it took.
        said: what it reported, see `distinct`, if it found something.
    """

    tool: str
    findings: int | None
    num_calls: int | None
    num_different: int | None
    seconds: float
    said: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether it ran to the end and found nothing."""
        return self.findings == 0 and self.num_different == 0


def watch(backend: str, tool: str, seconds: float, *policies: str) -> Outcome:
    """Run the subset under a tool; "none" for no tool."""
    # Without PyTorch's cache every tensor is an allocation of its own, whose edges tools know.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    try:
        finished = subprocess.run(
            _command(backend, tool, *policies),
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        output = finished.stdout + finished.stderr
    except subprocess.TimeoutExpired:
        output = f"not done after {seconds:.0f} s"
    return _judge(tool, output, time.monotonic() - start)


def _command(backend: str, tool: str, *policies: str) -> list[str]:
    command = [sys.executable, "-m", "kit.sanitize.subset", backend, *policies]
    if tool == "none":
        return command
    return ["compute-sanitizer", "--tool", tool, *OPTIONS.get(tool, ()), *command]


def _judge(tool: str, output: str, seconds: float) -> Outcome:
    calls, findings = CALLS.search(output), FINDINGS.findall(output)
    found = int(findings[-1]) if findings else 0 if tool == "none" and calls else None
    clean = found == 0 and calls is not None and calls[2] == "0"
    return Outcome(
        tool=tool,
        findings=found,
        num_calls=int(calls[1]) if calls else None,
        num_different=int(calls[2]) if calls else None,
        seconds=round(seconds, 1),
        said=() if clean else distinct(output),
    )


def main() -> int:
    """Watch, print, write; 0 if all is clean."""
    parser = argparse.ArgumentParser(prog="python -m kit.sanitize")
    parser.add_argument("--backend", required=True, choices=["triton", "cupy"])
    parser.add_argument("--tool", action="append", choices=TOOLS, help="repeatable; all of them")
    parser.add_argument("--seconds", type=float, default=600, help="for each tool (default 600)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    wanted = parser.parse_args()
    if shutil.which("compute-sanitizer") is None:
        raise UnavailableError("sanitize: needs compute-sanitizer, which comes with CUDA's toolkit")
    tools = wanted.tool or TOOLS
    with ThreadPoolExecutor(len(KINDS)) as pool:
        # Unwatched first: it compiles the kernels, which tools would slow down.
        names = [policy.name for policy in KINDS]
        outcomes = [*pool.map(lambda n: watch(wanted.backend, "none", wanted.seconds, n), names)]
        outcomes += pool.map(lambda tool: watch(wanted.backend, tool, wanted.seconds), tools)
    for outcome in outcomes:
        sys.stdout.write(f"{outcome.tool:>10}: {outcome.findings} found, {outcome.num_different} "
                         f"of {outcome.num_calls} calls differ, {outcome.seconds} s\n")  # fmt: skip
    if wanted.json is not None:
        keep(wanted.json, f"sanitize {wanted.backend}", _record(wanted.backend, outcomes))
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


def _record(backend: str, outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "backend": backend,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(torch.device("cuda")),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }


if __name__ == "__main__":
    sys.exit(main())
