"""`python -m lab.gpu.sanitize`: compute-sanitizer's tools over a few batches of a fused backend.

Each tool watches a run of the conformance kit, which judges the backend's answers. The exit code is
0 if every tool ran to its end and found nothing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from attrs import frozen

from acceptor.core import UnavailableError

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FINDINGS = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
REPORT = re.compile(r"^=+ (?! )(?!.*SUMMARY)(?!COMPUTE)(.+)$", re.MULTILINE)
CHANGING = re.compile(r"\(\d+,\d+,\d+\)|\[\d+ hazards\]|(?<=\s)0x[0-9a-f]+")
"""Threads, counts and addresses, which differ between reports of one finding. Offsets stay."""
MOST_REPORTS = 10
MOST_LINES = 6
"""How many last lines of a run that is not conformant are shown."""

# More mbarriers than any block has. Left alone, these tools size their tables by the number that
# the compiler names, which is another one where mbarriers are made in a loop.
OPTIONS = dict.fromkeys(("racecheck", "synccheck"), ("--num-cuda-barriers", "32"))


@frozen
class Outcome:
    """The outcome of one tool.

    Attributes:
        tool: its name; "none" is the same run unwatched.
        findings: errors or hazards; None if it did not reach its summary.
        is_conformant: whether the run under it passed.
        seconds: how long it took.
        reports: the different reports, each with its number.
    """

    tool: str
    findings: int | None
    is_conformant: bool
    seconds: float
    reports: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether it ran to the end and found nothing."""
        return self.findings == 0 and self.is_conformant

    def __str__(self) -> str:
        """One line, and the reports."""
        found = "no end, so no" if self.findings is None else str(self.findings)
        ended = "" if self.is_conformant else "NOT conformant, "
        line = f"{self.tool}: {found} findings, {ended}{self.seconds:.1f} s"
        return "\n".join([line, *self.reports])


def command_of(backend: str, tool: str, batches: int, seconds: float) -> list[str]:
    """The kit on small batches of a few kinds, under a tool; "none" for no tool."""
    kit = [sys.executable, "-m", "acceptor.backends.conformance", "--backend", backend]
    kit += ["--batches", str(batches), "--first-chunk", "1", "--forms", "8", "--chunk", "4"]
    kit += ["--max-vocab-size", "2500", "--seconds", f"{0.8 * seconds:.0f}"]
    watch = ["compute-sanitizer", "--tool", tool, *OPTIONS.get(tool, ())]
    return kit if tool == "none" else [*watch, *kit]


def judge(tool: str, output: str, seconds: float) -> Outcome:
    """Read the outcome from a run's output."""
    findings, is_conformant = FINDINGS.findall(output), output.find("\nconformant\n") >= 0
    found = int(findings[-1]) if findings else None
    if tool == "none" and is_conformant:
        found = 0
    counts = Counter(CHANGING.sub("...", report) for report in REPORT.findall(output))
    reports = [f"{count} times: {report}" for report, count in counts.most_common(MOST_REPORTS)]
    if not is_conformant:
        own = [line for line in output.splitlines() if not line.startswith("=")]
        reports += own[-MOST_LINES:]
    outcome = Outcome(tool, found, is_conformant, seconds, tuple(reports))
    return Outcome(tool, 0, True, seconds) if outcome.is_clean else outcome


def watch(backend: str, tool: str, batches: int, seconds: float) -> Outcome:
    """Run it."""
    # Without PyTorch's cache every tensor is an allocation of its own, whose edges tools know.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    try:
        command = command_of(backend, tool, batches, seconds)
        finished = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        output = finished.stdout + finished.stderr
    except subprocess.TimeoutExpired:
        output = ""
    return judge(tool, output, time.monotonic() - start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch and print; 0 if all is clean."""
    parser = argparse.ArgumentParser(prog="python -m lab.gpu.sanitize")
    parser.add_argument("--backend", required=True)
    parser.add_argument("--tool", action="append", choices=TOOLS, help="repeatable; all of them")
    parser.add_argument("--batches", type=int, default=32, help="default 32")
    parser.add_argument("--seconds", type=float, default=300, help="for all tools (default 300)")
    wanted = parser.parse_args(arguments)
    if shutil.which("compute-sanitizer") is None:
        raise UnavailableError("sanitize: needs compute-sanitizer, which comes with CUDA's toolkit")
    end = time.monotonic() + wanted.seconds
    # The first run is unwatched and compiles the kernels, which tools would slow down.
    outcomes = [watch(wanted.backend, "none", wanted.batches, 0.5 * wanted.seconds)]
    left, tools = end - time.monotonic(), wanted.tool or TOOLS
    with ThreadPoolExecutor(len(tools)) as pool:
        outcomes += pool.map(lambda t: watch(wanted.backend, t, wanted.batches, left), tools)
    for outcome in outcomes:
        sys.stdout.write(f"{outcome}\n")
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
