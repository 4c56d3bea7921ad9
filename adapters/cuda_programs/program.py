"""Compiles a package's CUDA C++: NVRTC to machine code, kept on disk.

This module refuses to load or launch it.
"""

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from attrs import frozen

from ...core.errors import UnavailableError

_logger = logging.getLogger(__name__)

OPTIONS = ("-std=c++17", "-default-device", "--ptxas-options=-v")


@frozen
class CudaProgram:
    """A file with kernels, and the headers beside it.

    Attributes:
        package: which has them in its folder `cuda`.
        file: the one with the kernels.
    """

    package: str
    file: str

    @property
    def title(self) -> str:
        """What users are told."""
        return self.package.rpartition(".")[2].replace("_", " ")

    @property
    def sources(self) -> dict[str, str]:
        """Every source by file name."""
        return _sources(self.package)

    def machine_code(self, macros: Sequence[str], architecture: str) -> Path:
        """A file of machine code, which is compiled unless it has been before.

        Args:
            macros: of one variant, as options of the compiler.
            architecture: such as sm_90a.

        Raises:
            UnavailableError: CuPy or NVRTC is missing, or NVRTC refuses.
        """
        path = self._path(macros, architecture)
        if path.exists():
            return path
        started = time.monotonic()
        code, _ = self.compile(macros, architecture)
        seconds = time.monotonic() - started
        _logger.warning("compiled %s for %s in %.1f s", self.title, architecture, seconds)
        try:
            return _keep(code, path)
        except OSError as error:
            _logger.warning("%s: every process compiles it anew: %s", self.title, error)
            return _keep(code, Path(tempfile.mkdtemp()) / path.name)

    def compile(self, macros: Sequence[str], architecture: str) -> tuple[bytes, str]:
        """A cubin, and what the assembler says of registers and spills.

        Raises:
            UnavailableError: as `machine_code`.
        """
        nvrtc = self._nvrtc()
        headers = {name: text for name, text in self.sources.items() if name != self.file}
        handle = nvrtc.createProgram(
            self.sources[self.file],
            self.file,
            [text.encode() for text in headers.values()],
            [name.encode() for name in headers],
        )
        try:
            nvrtc.compileProgram(handle, (f"-arch={architecture}", *OPTIONS, *macros))
            # CuPy takes off the last byte, as if it ended a string; disassemblers miss it.
            return nvrtc.getCUBIN(handle) + bytes(1), nvrtc.getProgramLog(handle)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(handle)
            raise UnavailableError(
                f"{self.title}: NVRTC refuses {self.file}: {error}\n{log}"
            ) from error
        finally:
            nvrtc.destroyProgram(handle)

    def _path(self, macros: Sequence[str], architecture: str) -> Path:
        major, minor = self._nvrtc().getVersion()
        parts = (*self.sources.values(), *OPTIONS, *macros, architecture, f"{major}.{minor}")
        key = hashlib.sha256("\0".join(parts).encode())
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "acceptor"
        return folder / self.title.replace(" ", "_") / f"{key.hexdigest()[:32]}.cubin"

    def _nvrtc(self) -> Any:
        """The compiler.

        Raises:
            UnavailableError: CuPy or NVRTC is missing.
        """
        try:
            from cupy_backends.cuda.libs import nvrtc  # noqa: PLC0415 (heavy, and may be missing)

            nvrtc.getVersion()
        except (ImportError, OSError, RuntimeError) as error:
            raise UnavailableError(f"{self.title}: cannot use NVRTC ({error})") from error
        return nvrtc


@cache
def _sources(package: str) -> dict[str, str]:
    folder = files(package) / "cuda"
    names = sorted(entry.name for entry in folder.iterdir())
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def _keep(code: bytes, path: Path) -> Path:
    """In a file that appears under its name when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(code)
        return Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
