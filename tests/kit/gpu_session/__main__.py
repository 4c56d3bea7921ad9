"""`python -m kit.gpu_session`: everything that needs a CUDA device, in one go, into docs/data.

It ends with 0 only if every part ran to its end and passed.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kit.gpu_runs import DATA
from kit.gpu_session.plan import benchmark, checks, compile_first, engine, proof
from kit.gpu_session.steps import Outcome, Step, run_together

PARTS = ("benchmark", "engine", "proof", "checks")
PAGES = (
    Step("gpu-page", ("kit.gpu_runs",)),
    Step(
        "kernels-page",
        (
            "acceptor.app.bench.kernels",
            *("--read", str(DATA / "kernels.json")),
            *("--markdown", str(DATA / "kernels.md")),
            *("--plot", str(DATA.parent / "figures" / "kernels.svg")),
        ),
    ),
)


def main() -> int:
    """Run all parts; 0 if all are content."""
    parser = argparse.ArgumentParser(prog="python -m kit.gpu_session")
    parser.add_argument("--backend", action="append", choices=["triton", "cupy"])
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable; all of them")
    parser.add_argument("--seconds", type=float, default=1800, help="in all (default 1800)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=DATA, help="for records (default docs/data)")
    parser.add_argument("--logs", type=Path, default=Path("gpu-session.logs"))
    wanted = parser.parse_args()
    backends = wanted.backend or ["triton", "cupy"]
    end: float = time.monotonic() + wanted.seconds
    wanted.logs.mkdir(parents=True, exist_ok=True)

    def left() -> float:
        return end - time.monotonic()

    def run(steps: Iterable[Step]) -> bool:
        outcomes = run_together([*steps], left(), wanted.logs)
        told = [_tell(outcome) for outcome in outcomes]
        return all(told)

    out = DATA.parent if wanted.folder == DATA else wanted.folder
    parts: dict[str, Callable[[], list[Step]]] = {
        "benchmark": lambda: benchmark(backends, wanted.folder),
        "engine": lambda: engine(backends, wanted.folder),
        "proof": lambda: proof(backends, out, left()),
        "checks": lambda: checks(backends, wanted.folder, left(), wanted.workers),
    }
    chosen = wanted.part or PARTS
    content = "benchmark" not in chosen or run(compile_first(backends))
    for part in filter(chosen.__contains__, PARTS):
        content &= run(parts[part]())
    if wanted.folder == DATA:
        end = time.monotonic() + 60
        content &= run(PAGES)
    return 0 if content else 1


def _tell(outcome: Outcome) -> bool:
    how = "interrupted" if outcome.code is None else f"exit code {outcome.code}"
    sys.stdout.write(f"{outcome.name}: {how} after {outcome.seconds:.0f} s\n")
    return outcome.code == 0


if __name__ == "__main__":
    sys.exit(main())
