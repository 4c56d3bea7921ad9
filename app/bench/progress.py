"""A progress bar per run, on stderr if it is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..console import new_console

OnEnded = Callable[[int], object]
"""Told how many more requests, or steps, have ended."""

Begin = Callable[[str, int], OnEnded]
"""Told the name and the length of a run before it begins."""


def silent(name: str, total: int) -> OnEnded:  # noqa: ARG001, see `Begin`
    """No progress bar."""
    return lambda _: None


@contextmanager
def progress_bars() -> Iterator[Begin]:
    """While it is open, a bar for each run that begins."""
    console = new_console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        yield lambda name, total: partial(progress.advance, progress.add_task(name, total=total))
