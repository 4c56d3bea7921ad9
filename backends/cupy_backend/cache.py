"""Compiled kernels on disk, in the user's cache directory.

Keyed by sources, options, architecture and compiler, so that nothing stale is ever found. It
refuses half-written files: each appears under its name when it is complete.
"""

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from .compiler import OPTIONS, compile_kernel, compiler_version, form_of
from .sources import sources

_logger = logging.getLogger(__name__)


def user_cache_directory() -> Path:
    """Where this user's compiled kernels are kept, by the XDG convention."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "acceptor" / "cupy"


@frozen
class CompiledKernels:
    """Machine code by kernel, variant and architecture.

    Attributes:
        directory: where files are kept.
    """

    directory: Path

    def load(self, kernel: str, macros: Sequence[str], architecture: int) -> bytes:
        """Machine code, compiled if it is not there yet, which takes seconds and is logged.

        Raises:
            UnavailableError: it cannot be compiled here.
        """
        path = self.directory / f"{_key(kernel, macros, architecture)}.cubin"
        if path.exists():
            return path.read_bytes()
        started = time.monotonic()
        code = compile_kernel(kernel, macros, architecture).code
        seconds = time.monotonic() - started
        _logger.warning(
            "compiled %s for sm_%d in %.1f s: %s", kernel, architecture, seconds, " ".join(macros)
        )
        _write_at_once(path, code)
        return code


def _key(kernel: str, macros: Sequence[str], architecture: int) -> str:
    digest = hashlib.sha256()
    options = (*OPTIONS, *macros, *form_of(kernel))
    for part in (*sources().values(), kernel, *options, str(architecture)):
        digest.update(part.encode())
        digest.update(b"\0")
    digest.update(compiler_version().encode())
    return digest.hexdigest()[:32]


def _write_at_once(path: Path, code: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(code)
    Path(name).replace(path)
