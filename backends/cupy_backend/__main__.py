"""`python -m acceptor.backends.cupy_backend`: registers, memory and spills of compiled variants.

Needs NVRTC but no GPU, except to say what a driver alone knows; it refuses to run kernels.
"""

import argparse
import logging
import re
import sys
import time

from ...core.errors import UnavailableError
from .compiler import compile_kernel
from .variant import KernelPolicy, Variant, all_variants

_COLUMNS = ("registers", "spilled", "stack", "shared")
_HEADER = " ".join([f"{'kernel and variant':58}", *(f"{name:>9}" for name in _COLUMNS), "    s"])


def main() -> int:
    """Print one line per kernel and variant."""
    parser = argparse.ArgumentParser(prog="python -m acceptor.backends.cupy_backend")
    parser.add_argument("--architecture", type=int, default=90, help="90 for sm_90")
    parser.add_argument("--policy", choices=[p.value.lower() for p in KernelPolicy])
    parser.add_argument("--matching", default="", help="regular expression on printed names")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    sys.stdout.write(_HEADER + "\n")
    for variant in all_variants():
        if chosen.policy not in (None, variant.policy.value.lower()):
            continue
        for kernel in variant.kernels:
            name = f"{kernel:6} {variant.name}"
            if re.search(chosen.matching, name):
                sys.stdout.write(f"{name:58} {_measure(kernel, variant, chosen.architecture)}\n")
                sys.stdout.flush()
    return 0


def _measure(kernel: str, variant: Variant, architecture: int) -> str:
    started = time.monotonic()
    compiled = compile_kernel(kernel, variant.macros, architecture)
    seconds = time.monotonic() - started
    return f"{_resources(compiled.log, kernel)} {seconds:5.1f}"


def _resources(log: str, kernel: str) -> str:
    entry = log[log.index(f"Compiling entry function '{kernel}'") :]
    # Functions that are not inlined follow; what they save counts, too.
    spilled = sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", entry))
    found = (
        re.search(r"Used (\d+) registers", entry),
        None,
        re.search(r"(\d+) bytes cumulative stack size", entry),
        re.search(r"(\d+) bytes smem", entry),
    )
    values = [match.group(1) if match else "0" for match in found]
    values[1] = str(spilled)
    return " ".join(f"{value:>9}" for value in values)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UnavailableError as error:
        sys.exit(str(error))
