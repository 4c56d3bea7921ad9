"""The CUDA sources of this package, as text."""

from functools import cache
from importlib.resources import files

PREAMBLE = "builtins.cuh"
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


def program(kernel: str) -> str:
    """The translation unit of a kernel."""
    return f'#include "{PREAMBLE}"\n#include "{kernel}.cu"\n'
