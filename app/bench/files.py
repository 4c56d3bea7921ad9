"""Files that a run leaves behind and a later one reads.

This module refuses to end a run in a traceback.
"""

import json
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError


def make_room(path: Path | None) -> None:
    """Make the folder of a file that is to be written; do nothing for None.

    Raises:
        ConfigError: it cannot be made.
    """
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: expected a file that can be written, got {error}") from None


def write_file(path: Path, text: str) -> None:
    """Write a text in UTF-8, in a folder that is made if need be.

    Raises:
        ConfigError: the file cannot be written.
    """
    make_room(path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: expected a file that can be written, got {error}") from None


def read_object(path: Path) -> dict[str, Any]:
    """What a JSON file holds.

    Raises:
        ConfigError: the file cannot be read, or holds no JSON object.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected JSON, got {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content
