"""From a TOML file's tables and the command line's flags to a `Config`; flags win.

Every error is one sentence that names the flag, or the file and the setting.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..adapters.bounded_text import read_config_file
from ..core import ConfigError
from .config import Config
from .options import SETTINGS, path_of
from .structure import structured

Table = Mapping[str, Any]


def read_config(file: Path | None, flags: Mapping[str, object]) -> Config:
    """The settings of a file, with those typed on top, by the path of the setting.

    Raises:
        ConfigError: a setting is unknown, of the wrong type or out of its range.
    """
    if "policy.acceptance_rate" in flags:
        # A synthetic rate without a policy's name says the name, too.
        name = flags.get("policy.name", "synthetic")
        if name != "synthetic":
            flag = "--synthetic-acceptance-rate"
            raise ConfigError(f"{flag}: expected the policy synthetic, got {name}")
        flags = {**flags, "policy.name": name}
    table = {} if file is None else read_config_file(file)
    typed = {path_of(one): one.opts[0] for one in SETTINGS if path_of(one) in flags}
    return structured(_with_flags(table, flags), Config, str(file), typed)


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
