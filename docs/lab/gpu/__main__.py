"""`python -m lab.gpu`: runs all that needs a CUDA device, into docs/data/gpu.json and gpu.md.

Each part is a process with its own time limit, a share of `--seconds`, and the record is written
after each part. Kernels are compiled by many processes first. Then timed parts run alone on the
device; tests, equivalence and sanitizers share it. Logs are in gpu.logs. The exit code is 0 if
every part ran to its end and passed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from attrs import frozen

from acceptor.app.bench.files import describe
from lab.gpu.record import keep, without_paths

DATA = Path(__file__).parents[2] / "data"
GRACE_SECONDS = 10.0
"""Seconds that a part gets after an interrupt to write what it has."""
MOST_LINES = 30
CALM = (
    *("-m", "gpu", "-q", "--dist", "worksteal", "--continue-on-collection-errors"),
    # What else is installed beside a GPU may warn: pytest-benchmark does so about workers.
    *("-W", "default", "-p", "no:benchmark", "--durations", "10"),
)
FORMS = ("--forms", "24")
"""Kinds of batches, which bounds compiling."""
GPU_TESTS = ("tests/backends", "tests/adapters", "tests/app", "tests/proof")


@frozen
class Part:
    """One command.

    Attributes:
        name: the part's name; several commands may belong to one part.
        command: the arguments of `python -m`.
        seconds: its time limit.
        telling: a pattern of results in its log; a line is kept from the match on.
        alone: whether nothing else may run on the device.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    telling: str
    alone: bool = False


def parts(wanted: argparse.Namespace) -> list[Part]:
    """All parts, with their shares of the time."""
    first, last = wanted.backend[0], wanted.backend[-1]
    backends = [word for name in wanted.backend for word in ("--backend", name)]
    beside = ("--beside", first) if first != last else ()
    out, total, half = wanted.out, wanted.seconds, str(max(wanted.workers // 2, 1))
    kernels = [f"--json={out / 'kernels.json'}", f"--markdown={out / 'kernels.md'}"]
    kernels.append(f"--seconds={0.21 * total:.0f}")
    on_gpu = ("--device", "cuda", "--seconds", f"{0.05 * total:.0f}")
    limits = ("--batches", str(wanted.batches), "--workers", half, "--seconds", f"{0.4 * total}")
    record = ("--json", str(out / f"equivalence-{last}.json"))
    return [
        Part(
            "compile",
            ("lab.gpu.compile_kernels", *backends, "--workers", str(wanted.workers)),
            0.08 * total,
            ".*(compiled|failed)",
            alone=True,
        ),
        Part(
            "kernels",
            ("acceptor.app.bench.kernels", "--headline", "--worst", *backends, *kernels),
            0.24 * total,
            r"Of [\d,]+ requests checked",
            alone=True,
        ),
        Part(
            "engine",
            ("lab.speed.engine", "--backend", first, "--out", str(out)),
            0.14 * total,
            "memory is read at .*",
            alone=True,
        ),
        Part(
            "proof",
            ("lab.proof", *backends, *on_gpu, "--json", str(out / "proof.json")),
            0.12 * total,
            ".*(holds:|FAILS:)",
            alone=True,
        ),
        Part(
            "tests",
            ("pytest", *CALM, "-n", half, *GPU_TESTS),
            0.4 * total,
            r".*(passed|failed)|^FAILED|^ERROR",
        ),
        Part(
            "equivalence",
            ("acceptor.backends.conformance", "--backend", last, *beside, *FORMS, *limits, *record),
            0.42 * total,
            r"^\| (batches|decisions|near-ties|unexplained) \||.*conformant",
        ),
        *(
            Part(
                f"sanitize {name}",
                ("lab.gpu.sanitize", "--backend", name, "--seconds", f"{0.3 * total:.0f}"),
                0.35 * total,
                ".*findings",
            )
            for name in wanted.backend
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested parts; 0 if all passed."""
    wanted = _parser().parse_args(arguments)
    wanted.backend = wanted.backend or ["triton", "cupy"]
    wanted.logs.mkdir(parents=True, exist_ok=True)
    wanted.out.mkdir(parents=True, exist_ok=True)
    chosen = [p for p in parts(wanted) if p.name.partition(" ")[0] in (wanted.part or [*PARTS])]
    turn, machine = Lock(), describe(torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    def run(part: Part) -> bool:
        outcome = run_part(part, wanted.logs) | {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine,
        }
        with turn:
            keep(wanted.out / "gpu.json", part.name, outcome)
        sys.stdout.write(f"{part.name}: {outcome['outcome']} after {outcome['seconds']} s\n")
        return bool(outcome["outcome"] == "passed")

    passed = [run(part) for part in chosen if part.alone]
    with ThreadPoolExecutor() as pool:
        passed += pool.map(run, [part for part in chosen if not part.alone])
    return 0 if all(passed) else 1


def run_part(part: Part, logs: Path) -> dict[str, Any]:
    """Run a part; returns how it ended, how long it took and its results."""
    start, path = time.monotonic(), logs / f"{part.name.replace(' ', '-')}.log"
    with path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *part.command],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(process, part.seconds)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found = (re.search(part.telling, line) for line in lines)
    said = [match.string[match.start() :] for match in found if match] or lines[-3:]
    outcome = {0: "passed", None: "out of time"}.get(code, f"failed, exit code {code}")
    seconds = round(time.monotonic() - start, 1)
    return {"outcome": outcome, "seconds": seconds, "said": without_paths(said[-MOST_LINES:])}


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        # This kills its workers, too: it leads its own session.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return None


PARTS = ("compile", "kernels", "engine", "proof", "tests", "equivalence", "sanitize")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.gpu")
    add = parser.add_argument
    add("--part", action="append", choices=PARTS, help="repeatable; all of them")
    add("--backend", action="append", help="repeatable; triton and cupy, the last beside the first")
    add("--seconds", type=float, default=600, help="in all (default 600)")
    add("--batches", type=int, default=10_000, help="of the equivalence campaign (default 10000)")
    add("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    add("--out", type=Path, default=DATA, help="of all records, docs/data; copy proof.json there")
    add("--logs", type=Path, default=Path("gpu.logs"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
