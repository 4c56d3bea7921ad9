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
from .variant import KernelPolicy, all_variants

_COLUMNS = ("registers", "spilled", "stack", "shared")
_HEADER = " ".join([f"{'variant':44}", *(f"{name:>9}" for name in _COLUMNS), "    s"])


def main() -> int:
    """Print one line per variant."""
    parser = argparse.ArgumentParser(prog="python -m acceptor.backends.cupy_backend")
    parser.add_argument("--architecture", type=int, default=90, help="90 for sm_90")
    parser.add_argument("--policy", choices=[p.value.lower() for p in KernelPolicy])
    parser.add_argument("--matching", default="", help="regular expression on variant names")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    sys.stdout.write(_HEADER + "\n")
    for variant in all_variants():
        other = chosen.policy not in (None, variant.policy.value.lower())
        if other or not re.search(chosen.matching, variant.name):
            continue
        started = time.monotonic()
        compiled = compile_kernel("verify", variant.macros, chosen.architecture)
        seconds = time.monotonic() - started
        sys.stdout.write(f"{variant.name:44} {_resources(compiled.log)} {seconds:5.1f}\n")
        sys.stdout.flush()
    return 0


def _resources(log: str) -> str:
    kernel = log[log.index("Compiling entry function 'verify'") :]
    names = ("Used (\\d+) registers", "(\\d+) bytes spill stores", "(\\d+) bytes stack frame",
             "(\\d+) bytes smem")  # fmt: skip
    found = [re.search(name, kernel) for name in names]
    return " ".join(f"{match.group(1) if match else '?':>9}" for match in found)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UnavailableError as error:
        sys.exit(str(error))
