"""`python -m acceptor.backends.cupy_backend`: registers, memory, spills and code of variants.

Needs NVRTC but no GPU, except to say what a driver alone knows; it refuses to run kernels.
"""

import argparse
import logging
import re
import sys

from ...core.errors import UnavailableError
from .assembly import Assembly, find_disassembler, spilled_bytes
from .compiler import Compiled, compile_kernel
from .variant import KernelPolicy, Variant, all_variants

_COLUMNS = ("registers", "spilled", "stack", "shared", "code", "per logit")
_HEADER = " ".join([f"{'kernel and variant':50}", *(f"{name:>9}" for name in _COLUMNS)])


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
                sys.stdout.write(f"{name:50} {_measure(kernel, variant, chosen.architecture)}\n")
                sys.stdout.flush()
    return 0


def _measure(kernel: str, variant: Variant, architecture: int) -> str:
    compiled = compile_kernel(kernel, variant.macros, architecture)
    streams = not kernel.endswith("_end")  # those take words that others left
    values = (*_resources(compiled.log, kernel), *_code(compiled, streams=streams))
    return " ".join(f"{value:>9}" for value in values)


def _resources(log: str, kernel: str) -> tuple[str, ...]:
    entry = log[log.index(f"Compiling entry function '{kernel}'") :]
    found = (
        re.search(r"Used (\d+) registers", entry),
        re.search(r"(\d+) bytes cumulative stack size", entry),
        re.search(r"(\d+) bytes smem", entry),
    )
    registers, stack, shared = (match.group(1) if match else "0" for match in found)
    # Functions that are not inlined follow; what they save counts, too.
    return registers, str(spilled_bytes(log, kernel)), stack, shared


def _code(compiled: Compiled, *, streams: bool) -> tuple[str, str]:
    disassembler = find_disassembler()
    if disassembler is None:
        return "-", "-"
    assembly = Assembly.of(compiled.code, disassembler)
    streams = streams and assembly.streams
    return str(assembly.code_bytes), f"{assembly.instructions_per_logit():.2f}" if streams else "-"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UnavailableError as error:
        sys.exit(str(error))
