"""Builds CUDA sources with g++, to call them as functions of the host.

Libraries are kept for other processes: workers share tests, and each would compile the same ones. A
library's key is everything that it is made from.
"""

import ctypes
import fcntl
import shutil
import subprocess
from functools import cache
from hashlib import sha256
from pathlib import Path

from acceptor.backends.cupy_backend.variant import POLICY_MACRO, Variant

GXX = shutil.which("g++")
NUM_WARPS = 4
"""The warps of every CTA: as few as kernels can run with, because each thread is a fiber."""
_ROOT = Path(__file__).parents[2]
_FOLDERS = [_ROOT / "tests/backends/cuda_on_host", _ROOT / "backends/cupy_backend/cuda"]
# Without unique symbols each library has its own of everything.
_OPTIONS = ("-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-fno-gnu-unique")


@cache
def library_of(variant: Variant) -> ctypes.CDLL:
    """The library of a variant's kernels, compiled if it does not exist."""
    macros = (POLICY_MACRO, *variant.macros, f"-DKERNEL_WARPS={NUM_WARPS}")
    library = _present() / f"{sha256(' '.join(macros).encode()).hexdigest()[:24]}.so"
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            source, unfinished = _FOLDERS[0] / "kernels_on_host.cpp", library.with_suffix(".part")
            includes = [f"-I{folder}" for folder in _FOLDERS]
            command = ["g++", *_OPTIONS, *includes, *macros, str(source), "-o", str(unfinished)]
            subprocess.run(command, check=True)
            unfinished.rename(library)
    return ctypes.CDLL(str(library))


@cache
def _present() -> Path:
    """The folder for the present sources' libraries; earlier ones are removed."""
    version = subprocess.run(["g++", "--version"], check=True, capture_output=True).stdout
    told = sha256(version + " ".join(_OPTIONS).encode())
    for file in sorted(file for folder in _FOLDERS for file in folder.iterdir()):
        told.update(file.name.encode() + file.read_bytes())
    present = _ROOT / ".host_cache" / told.hexdigest()[:24]
    for other in present.parent.glob("*"):
        if other != present:
            shutil.rmtree(other, ignore_errors=True)
    present.mkdir(parents=True, exist_ok=True)
    return present
