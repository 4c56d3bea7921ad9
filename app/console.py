"""Where people's text is printed, as it is: nothing in a path or a name is markup or an emoji."""

from rich.console import Console


def new_console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
