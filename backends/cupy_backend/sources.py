"""The CUDA sources of this package, as text; refuses to compile them."""

from functools import cache
from importlib.resources import files

PREAMBLE = "cuda_builtins.cuh"
"""What a kernel sees first; a host build replaces it."""


@cache
def sources() -> dict[str, str]:
    """Every source by file name."""
    folder = files(__package__) / "cuda"
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith((".cu", ".cuh"))
    }


def program(*kernels: str) -> str:
    """The translation unit of `.cu` files."""
    return "".join(f'#include "{name}"\n' for name in (PREAMBLE, *(f"{k}.cu" for k in kernels)))
