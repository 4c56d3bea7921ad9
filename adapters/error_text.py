"""Quotes foreign text in one-line errors, and reads files that may hold anything.

Such reads always end and never fill the memory.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.errors import AcceptorError, CheckpointError, ConfigError

MAX_LENGTH = 300


def ends_program(error: BaseException) -> bool:
    """Whether an error asks the program to end and must not be reported as a file's mistake."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def one_line(said: object) -> str:
    """The text of an error or a value, on one line of bounded length."""
    if isinstance(said, OSError) and said.strerror:
        # The number and the path would add nothing.
        said = said.strerror
    try:
        words = " ".join(str(said).split())
    except Exception:  # noqa: BLE001, even str() of a foreign error may fail
        words = type(said).__name__
    return words if len(words) <= MAX_LENGTH else words[:MAX_LENGTH] + " …"


def with_kind(error: BaseException) -> str:
    """The kind and the text of an error that foreign code raised."""
    return f"{type(error).__name__}: {one_line(error)}"


def unfit(
    where: object, expected: str, got: object, kind: type[AcceptorError] = CheckpointError
) -> AcceptorError:
    """An error that says what was expected, and which error or value came instead."""
    return kind(f"{where}: expected {expected}, got {one_line(got)}")


MAX_CHARACTERS = 64 * 2**20
"""More than any real config, template or shard index has; /dev/zero has more."""


def read_bounded(path: Path) -> str:
    """The text of a file of bounded length.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too long, or not UTF-8.
    """
    with path.open(encoding="utf-8") as file:
        text = file.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"more than {MAX_CHARACTERS} characters")
    return text


def read_named(path: Path, expected: str, read: Callable[[str], Any] = str) -> Any:
    """Read a file that the user named; a bad one raises `ConfigError`."""
    try:
        return read(read_bounded(path))
    except (OSError, ValueError, RecursionError) as error:
        raise unfit(path, expected, error, ConfigError) from None
