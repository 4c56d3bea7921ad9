"""A progress bar per run, on stderr if it is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich import progress

from ..console import new_console

OnEnded = Callable[[int], object]
"""Called with how many more requests, or steps, have ended."""

Begin = Callable[[str, int], OnEnded]
"""Called with the name and the length of a run before it begins."""


def silent(name: str, total: int) -> OnEnded:  # noqa: ARG001, see `Begin`
    """No progress bar."""
    return lambda _: None


@contextmanager
def progress_bars() -> Iterator[Begin]:
    """Shows a bar for each run that begins within the context."""
    console = new_console(stderr=True)
    with progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bars:
        yield lambda name, total: partial(bars.advance, bars.add_task(name, total=total))
