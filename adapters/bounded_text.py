"""Text files that may be anything: reading them ends, and does not fill the memory."""

from pathlib import Path

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
