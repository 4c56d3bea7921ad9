"""Text files that may be anything: reading them ends, and does not fill the memory."""

import tomllib
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from .error_text import one_line

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


def read_config_file(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; what is none raises `ConfigError`."""
    try:
        return tomllib.loads(read_bounded(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected a TOML file, got {one_line(error)}") from None
