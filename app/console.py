"""Where people's text is printed, as it is: nothing in a path or a name is markup or an emoji."""

from rich.console import Console

MIN_PIPE_WIDTH = 20
"""Characters: what a pipe gets at least, since rich prints nothing in no columns."""


def new_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that prints text as it is, or nothing."""
    console = Console(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, MIN_PIPE_WIDTH)
    return console
