"""A pytest plugin: `-p kit.gpu_record --gpu-record FILE` writes the outcome of a run on a GPU."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from acceptor.app.bench.kernels.machine import describe
from kit.gpu_runs import keep

OUTCOMES = ("passed", "failed", "error", "skipped")
MOST_CHARACTERS = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu-record", type=Path, metavar="FILE", help="write the run's outcome")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STARTED] = time.monotonic()


STARTED = pytest.StashKey[float]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    path: Path | None = config.getoption("--gpu-record")
    if path is None:
        return
    seconds = time.monotonic() - config.stash[STARTED]
    keep(path, "tests", as_record(terminalreporter.stats, seconds))


def as_record(reports: dict[str, list[Any]], seconds: float) -> dict[str, Any]:
    """Counts by outcome; what failed and why; why tests were skipped, and how many."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bad = [*reports.get("failed", ()), *reports.get("error", ())]
    reasons = [str(report.longrepr[2]) for report in reports.get("skipped", ())]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(device),
        "seconds": round(seconds, 1),
        "counts": {outcome: len(reports.get(outcome, ())) for outcome in OUTCOMES},
        "failures": {report.nodeid: _end(report.longreprtext) for report in bad},
        "skipped": {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)},
    }


def _end(text: str) -> str:
    errors = [line for line in text.splitlines() if line.startswith("E ")]
    return " ".join(errors or text.splitlines()[-1:])[:MOST_CHARACTERS]
