"""The console for people's text, which it prints unchanged: nothing is markup or an emoji."""

from rich.console import Console

MIN_PIPE_WIDTH = 20
"""The least characters per line in a pipe: rich prints nothing if there are no columns."""


def new_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that prints text unchanged or, if quiet, nothing."""
    console = Console(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, MIN_PIPE_WIDTH)
    return console
