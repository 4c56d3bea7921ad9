"""CUDA sources built by g++, to be called as functions of the host."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from acceptor.backends.cupy_backend.variant import Variant

GXX = shutil.which("g++")
_SHIM = Path(__file__).parents[1] / "backends" / "cuda_on_host"
_SOURCES = Path(__file__).parents[2] / "backends" / "cupy_backend" / "cuda"


def build_on_host(
    source: str, variant: Variant, folder: Path, macros: Sequence[str] = ()
) -> ctypes.CDLL:
    """Compile a file of tests/backends/cuda_on_host.

    Args:
        source: its name without `.cpp`.
        variant: what its macros say.
        folder: where the library goes.
        macros: further compiler options.
    """
    library = folder / f"{source}-{abs(hash(variant))}.so"
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread"]
    includes = [f"-I{_SOURCES}", f"-I{_SHIM}"]
    path = str(_SHIM / f"{source}.cpp")
    command = [str(GXX), *options, *includes, *variant.macros, *macros, path, "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))
