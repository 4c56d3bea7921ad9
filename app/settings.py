"""From a TOML file's tables and the command line's flags to a `Config`; flags win.

Every error is one sentence that names the flag, or the file and the setting.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cattrs.errors import BaseValidationError

from ..core.errors import ConfigError
from .config import Config
from .options import OPTIONS
from .structure import first_problem, make_converter

Table = Mapping[str, Any]


def load_config(
    table: Table, source: str, flags: Mapping[str, object] = MappingProxyType({})
) -> Config:
    """Check and type all settings.

    Args:
        table: what the file holds; empty without one.
        source: the file, for errors.
        flags: what is set on the command line, by the path of the setting.

    Raises:
        ConfigError: a setting is unknown, of the wrong type or out of its range.
    """
    try:
        return make_converter().structure(_with_flags(table, flags), Config)
    except BaseValidationError as error:
        path, problem = first_problem(error)
        names = {option.path: option.flag for option in OPTIONS if option.path in flags}
        raise ConfigError(f"{names.get(path, f'{source}: {path}')}: {problem}") from None


def _with_flags(table: Table, flags: Mapping[str, object]) -> Table:
    merged = dict(table)
    if any(path.startswith("policy.") for path in flags):
        # Settings of another policy would not fit.
        merged["policy"] = {}
    for path, value in flags.items():
        section, _, name = path.rpartition(".")
        if not section:
            merged[name] = value
        elif isinstance(merged.setdefault(section, {}), Mapping):
            merged[section] = {**merged[section], name: value}
    return merged
