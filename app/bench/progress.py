"""A progress bar per run, with rates, on stderr if it is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ..console import new_console
from .load import Gain

OnStep = Callable[[Gain], None]


class _Rates(ProgressColumn):
    """Tokens and requests per second since the run began."""

    def render(self, task: Task) -> Text:
        seconds = task.finished_time or task.elapsed or float("inf")
        tokens, requests = task.fields["num_tokens"] / seconds, task.completed / seconds
        return Text(f"{tokens:,.0f} tok/s  {requests:.1f} req/s", style="cyan")


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int], OnStep]]:
    """While it is open, (name, number of requests) makes a bar and what feeds it."""
    console = new_console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _Rates(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:

        def begin(name: str, num_requests: int) -> OnStep:
            task_id, num_tokens = progress.add_task(name, total=num_requests, num_tokens=0), 0

            def on_step(gain: Gain) -> None:
                nonlocal num_tokens
                num_tokens += gain.num_tokens
                progress.update(task_id, advance=gain.num_ended, num_tokens=num_tokens)

            return on_step

        yield begin
