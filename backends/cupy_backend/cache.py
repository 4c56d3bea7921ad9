"""Compiled kernels on disk, in the user's cache directory.

Files are keyed by sources, options, architecture and compiler, so none is ever stale. A file gets
its name when it is complete, and ends in a checksum of its content. If nothing can be kept, every
process compiles its kernels.
"""

import hashlib
import logging
import os
import tempfile
import time
from functools import cache
from pathlib import Path

from attrs import field, frozen

from .compiler import compile_kernel, compiler_version, options_of, sources
from .variant import Variant

_logger = logging.getLogger(__name__)


def user_cache_directory() -> Path:
    """The directory of this user's compiled kernels, by the XDG convention."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # neither HOME nor an entry in the system's list of users
        base = Path("/nonexistent")  # what systems name as the home of a user without one
    return base / "acceptor" / "cupy"


@frozen
class CompiledKernels:
    """Machine code by kernel, variant and architecture.

    Attributes:
        directory: the folder of the files.
    """

    directory: Path = field(factory=user_cache_directory)

    def path(self, kernel: str, variant: Variant, architecture: int) -> Path:
        """The file of a kernel's code, whether it exists or not."""
        asked = *sources().values(), kernel, *options_of(kernel, variant, architecture)
        digest = hashlib.sha256("\0".join([*asked, compiler_version()]).encode())
        return self.directory / f"{digest.hexdigest()[:32]}.cubin"

    def load(self, kernel: str, variant: Variant, architecture: int) -> bytes:
        """Load machine code. If it does not exist, compile it, which takes seconds and is logged.

        Raises:
            UnavailableError: it cannot be compiled here.
        """
        path = self.path(kernel, variant, architecture)
        kept = _read_whole(path)
        if kept is not None:
            return kept
        what = f"{kernel} for sm_{architecture}"
        _logger.warning("compiling %s: %s", what, " ".join(variant.macros))
        started = time.monotonic()
        code = compile_kernel(kernel, variant, architecture)
        _logger.warning("compiled %s in %.1f s", what, time.monotonic() - started)
        try:
            _write_at_once(path, code + _checksum(code))
        except OSError as error:
            _say_once_that_nothing_is_kept(self.directory, str(error))
        return code


@cache
def _say_once_that_nothing_is_kept(directory: Path, reason: str) -> None:
    _logger.warning(
        "compiled kernels cannot be kept in %s, and every process compiles them anew (%s); "
        "set XDG_CACHE_HOME to a directory that can be written",
        directory,
        reason,
    )


def _checksum(code: bytes) -> bytes:
    return hashlib.sha256(code).digest()


def _read_whole(path: Path) -> bytes | None:
    """The code in a file; None if it cannot be read, or is damaged."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    code = kept[:-size]
    return code if kept[-size:] == _checksum(code) else None


def _write_at_once(path: Path, kept: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder, path.name)
        whole.write_bytes(kept)
        whole.replace(path)
