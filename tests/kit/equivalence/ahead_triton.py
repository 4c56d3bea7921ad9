"""Triton's kernels compiled for the current device and not launched; see `ahead`.

Whatever Triton tells its kernels apart by is in the key of its cache, so that is what is claimed.
It refuses to wait for a kernel that another process compiles.
"""

from contextlib import suppress
from functools import partial
from typing import Any

from triton import knobs
from triton.runtime.cache import FileCacheManager

from acceptor.backends.triton_backend import TritonSampler
from kit.equivalence.ahead import Claim


class TakenError(Exception):
    """Another process compiles the kernel, or has done so."""


def TritonCompiler(claim: Claim) -> TritonSampler:  # noqa: N802, made like CupyCompiler
    """A sampler that compiles the kernels that it can claim."""

    class Claiming(FileCacheManager):  # type: ignore[misc] # Triton has no types
        """Ends the compilation of what somebody else has claimed."""

        def get_group(self, filename: str) -> dict[str, str]:
            if not claim(self.key):
                raise TakenError
            found: dict[str, str] = super().get_group(filename)
            return found

    return TritonSampler(partial(_compile, Claiming))


def _compile(manager: type[Any], kernel: Any, grid: object, *args: object, **options: Any) -> None:
    with knobs.cache.scope(), suppress(TakenError):
        knobs.cache.manager_class = manager
        kernel.warmup(*args, grid=grid, **options)
