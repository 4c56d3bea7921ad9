"""Where a captured step may be cut into several graphs, launched one after the other.

A GPU begins a graph when all of it has been launched, and that takes the longer the more kernels it
has; behind a cut, launching hides behind what runs before. This module refuses to capture.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def _go_on() -> None:
    """Nothing is being captured."""


_cut: ContextVar[Callable[[], None]] = ContextVar("cut", default=_go_on)


def cut_here() -> None:
    """What follows needs nothing but tensors of what came before."""
    _cut.get()()


@contextmanager
def cutting(cut: Callable[[], None]) -> Iterator[None]:
    """Call this at every place where `cut_here` is, instead of going on."""
    token = _cut.set(cut)
    try:
        yield
    finally:
        _cut.reset(token)
