"""`python -m lab.gpu.compile_kernels --backend NAME`: compiles all rows of the benchmark at once.

A row's kernels are the same for all kinds of inputs. Each row is a process of the benchmark.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from acceptor.app.bench.kernels.workload import HEADLINE, WORST

MOST_WORKERS = 16
"""Processes that an H200's memory has room for: each holds a row's largest logits."""
ONCE = ("--inputs", "lm", "--count", "1", "--sets", "1", "--no-check")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, and print which rows failed; 0 if none did."""
    parser = argparse.ArgumentParser(prog="python -m lab.gpu.compile_kernels")
    parser.add_argument("--backend", action="append", required=True, help="repeatable")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at most 16")
    wanted = parser.parse_args(arguments)
    command = [sys.executable, "-m", "acceptor.app.bench.kernels", "--headline", "--worst", *ONCE]
    command += [word for name in wanted.backend for word in ("--backend", name)]

    def compile_row(label: str) -> int:
        output = subprocess.run([*command, "--only", label], capture_output=True, check=False)
        return output.returncode

    labels = sorted({workload.label for workload in (*HEADLINE, *WORST)})
    with ThreadPoolExecutor(min(wanted.workers, MOST_WORKERS)) as pool:
        codes = dict(zip(labels, pool.map(compile_row, labels), strict=True))
    failed = [label for label, code in codes.items() if code]
    sys.stdout.write(f"{len(labels) - len(failed)} rows compiled\n")
    sys.stdout.writelines(f"failed: {label}\n" for label in failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
