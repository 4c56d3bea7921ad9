"""Configuration files in TOML, read but not understood: see `acceptor.app.config`."""

import tomllib
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError


def read_config_file(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ConfigError: there is no such file, or it is not TOML.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: expected a TOML file, got {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: expected TOML, got {error}") from None
