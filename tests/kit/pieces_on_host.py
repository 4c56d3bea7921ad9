"""Kernels that read pieces of rows, and those that decide behind them, as functions of the host."""

import ctypes
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from acceptor.backends.cupy_backend.compiler import form_of
from acceptor.backends.cupy_backend.variant import Variant

from .cuda_on_host import Build, build_once


@frozen(eq=False)
class BothKernels:
    """Each from a library of its own: they differ in the size of a CTA."""

    reading: ctypes.CDLL
    deciding: ctypes.CDLL

    def __getattr__(self, name: str) -> Any:
        if name.endswith("pieces_end"):
            return self.deciding.run
        return self.reading.run if name.endswith("pieces") else getattr(self.reading, name)


def _options(suffix: str, variant: Variant) -> list[str]:
    kernel = f"{variant.pieces}{suffix}"
    return [f"-DKERNEL={kernel}", f'-DKERNEL_SOURCE="{kernel}.cu"', *form_of(kernel)]


def build_pieces(folder: Path) -> Build:
    """Compiles both kernels of a variant when it is first asked for; schedules are the first's."""
    builds = []
    for suffix in ("", "_end"):
        place = folder / f"kernels{suffix}"
        place.mkdir()
        builds.append(build_once("pieces_on_host", place, partial(_options, suffix)))
    both: Any = lambda variant: BothKernels(*(one(variant) for one in builds))  # noqa: E731
    made: Build = both
    return made
