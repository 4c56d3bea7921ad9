"""Text of others: what they say in our one-line errors, and files that may be anything.

Reading those ends, and does not fill the memory.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.errors import AcceptorError, CheckpointError, ConfigError

MAX_LENGTH = 300


def ends_program(error: BaseException) -> bool:
    """Whether it asks the program to end, so that nobody may keep it for a stranger's mistake."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def one_line(said: object) -> str:
    """What an error or a value says, on one line of bounded length."""
    if isinstance(said, OSError) and said.strerror:
        # The number and the path would say nothing new.
        said = said.strerror
    try:
        words = " ".join(str(said).split())
    except Exception:  # noqa: BLE001, a stranger's error may fail even at that
        words = type(said).__name__
    return words if len(words) <= MAX_LENGTH else words[:MAX_LENGTH] + " …"


def unfit(
    where: object, expected: str, got: object, kind: type[AcceptorError] = CheckpointError
) -> AcceptorError:
    """The error that says what there should be, and what an error or a value says instead."""
    return kind(f"{where}: expected {expected}, got {one_line(got)}")


MAX_CHARACTERS = 64 * 2**20
"""More than any real config, template or shard index; /dev/zero has more."""


def read_bounded(path: Path) -> str:
    """The text of a file.

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
    """What a file that the user names says to its reader; anything else raises `ConfigError`."""
    try:
        return read(read_bounded(path))
    except (OSError, ValueError, RecursionError) as error:
        raise unfit(path, expected, error, ConfigError) from None
