"""Commands side by side, within a time, with their output kept in files."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import frozen

GRACE_SECONDS = 10.0
"""After an interrupt a command may still write down what it has."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@frozen
class Step:
    """One command.

    Attributes:
        name: names its log, too.
        arguments: behind `python -m`.
    """

    name: str
    arguments: tuple[str, ...]


@frozen
class Outcome:
    """How a step ended.

    Attributes:
        name: the step's.
        code: what it exited with; None if it was interrupted.
        seconds: how long it took.
    """

    name: str
    code: int | None
    seconds: float


def run_together(steps: Sequence[Step], seconds: float, logs: Path) -> list[Outcome]:
    """Start all at once; interrupt those that are not done in time."""
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(max(len(steps), 1)) as pool:
        return [*pool.map(lambda step: _run(step, deadline, logs), steps)]


def _run(step: Step, deadline: float, logs: Path) -> Outcome:
    start = time.monotonic()
    with (logs / f"{step.name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *step.arguments],
            env={**os.environ, **ENVIRONMENT},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(process, max(deadline - start, 0.0))
    return Outcome(step.name, code, round(time.monotonic() - start, 1))


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        # Its workers, too: it leads a session of its own.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return None
