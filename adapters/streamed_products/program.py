"""Compiles the kernels of this package: NVRTC to machine code, kept on disk.

This module refuses to launch them.
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from ...core.errors import UnavailableError

_logger = logging.getLogger(__name__)

PROGRAM = "product.cu"
OPTIONS = ("-std=c++17", "-default-device", "--ptxas-options=-v")


@cache
def sources() -> dict[str, str]:
    """Every source by file name."""
    folder = files(__package__) / "cuda"
    names = sorted(entry.name for entry in folder.iterdir())
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def machine_code(macros: Sequence[str], architecture: str) -> Path:
    """A file of machine code, which is compiled unless it has been before.

    Args:
        macros: see `Form.macros`.
        architecture: such as sm_90a.

    Raises:
        UnavailableError: CuPy or NVRTC is missing, or NVRTC refuses.
    """
    parts = (*sources().values(), *OPTIONS, *macros, architecture, _version())
    key = hashlib.sha256("\0".join(parts).encode())
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "acceptor" / "streamed_products"
    path = folder / f"{key.hexdigest()[:32]}.cubin"
    if path.exists():
        return path
    code, _ = compile_program(macros, architecture)
    _logger.warning("compiled a streamed product for %s", architecture)
    try:
        return _keep(code, path)
    except OSError as error:
        _logger.warning("streamed products are compiled anew in every process: %s", error)
        return _keep(code, Path(tempfile.mkdtemp()) / path.name)


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


def _version() -> str:
    try:
        from cupy_backends.cuda.libs import nvrtc  # noqa: PLC0415 (heavy, and may be missing)

        return str(nvrtc.getVersion())
    except (ImportError, OSError, RuntimeError) as error:
        raise UnavailableError(f"streamed products: cannot use NVRTC ({error})") from error


def compile_program(macros: Sequence[str], architecture: str) -> tuple[bytes, str]:
    """A cubin, and what the assembler says of registers and spills.

    Raises:
        UnavailableError: as `machine_code`.
    """
    _version()
    from cupy_backends.cuda.libs import nvrtc  # noqa: PLC0415 (heavy, and may be missing)

    headers = {name: text for name, text in sources().items() if name != PROGRAM}
    handle = nvrtc.createProgram(
        sources()[PROGRAM],
        PROGRAM,
        [text.encode() for text in headers.values()],
        [name.encode() for name in headers],
    )
    try:
        nvrtc.compileProgram(handle, (f"-arch={architecture}", *OPTIONS, *macros))
        # CuPy takes off the last byte, as if it ended a string; disassemblers miss it.
        return nvrtc.getCUBIN(handle) + bytes(1), nvrtc.getProgramLog(handle)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(handle)
        raise UnavailableError(f"streamed products: NVRTC refuses: {error}\n{log}") from error
    finally:
        nvrtc.destroyProgram(handle)
