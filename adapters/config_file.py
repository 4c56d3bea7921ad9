"""Configuration files in TOML, read but not understood: see `acceptor.app.config`."""

import tomllib
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from .bounded_text import read_bounded
from .error_text import one_line


def read_config_file(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; what is none raises `ConfigError`."""
    try:
        return tomllib.loads(read_bounded(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected a TOML file, got {one_line(error)}") from None
