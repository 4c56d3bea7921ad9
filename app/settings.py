"""From a TOML file's tables and the command line's flags to a `Config`; flags win.

Every error is one sentence that names the flag, or the file and the setting.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import fields_dict
from cattrs.errors import AttributeValidationNote, BaseValidationError, ForbiddenExtraKeysError

from ..core.errors import ConfigError, InvalidInputError
from .config import Config
from .options import Flag
from .structure import make_converter

Table = Mapping[str, Any]


def load_config(table: Table, source: str, flags: Sequence[Flag] = ()) -> Config:
    """Check and type all settings.

    Args:
        table: what the file holds; empty without one.
        source: the file, for errors.
        flags: what is set on the command line.

    Raises:
        ConfigError: a setting is unknown, of the wrong type or out of its range.
    """
    try:
        return make_converter().structure(_with_flags(table, flags), Config)
    except BaseValidationError as error:
        path, problem = _first_problem(error)
        names = {flag.path: flag.name for flag in flags}
        raise ConfigError(f"{names.get(path, f'{source}: {path}')}: {problem}") from None


def _with_flags(table: Table, flags: Sequence[Flag]) -> Table:
    merged = dict(table)
    if any(flag.path.startswith("policy.") for flag in flags):
        # Settings of another policy would not fit.
        merged["policy"] = {}
    for flag in flags:
        section, _, name = flag.path.rpartition(".")
        if not section:
            merged[name] = flag.value
        elif isinstance(merged.setdefault(section, {}), Mapping):
            merged[section] = {**merged[section], name: flag.value}
    return merged


def _first_problem(error: Exception, path: str = "") -> tuple[str, str]:
    if isinstance(error, BaseValidationError):
        first = error.exceptions[0]
        return _first_problem(first, _join(path, _attribute_of(first)))
    if isinstance(error, ForbiddenExtraKeysError):
        known = ", ".join(fields_dict(error.cl)) or "no setting"
        unknown = min(error.extra_fields)
        return _join(path, unknown), f"expected {known} here, got an unknown setting"
    if isinstance(error, InvalidInputError):
        name, _, problem = str(error).partition(": ")
        return _join(path, name), problem
    return path, str(error)


def _attribute_of(error: Exception) -> str:
    notes = getattr(error, "__notes__", ())
    return next((note.name for note in notes if isinstance(note, AttributeValidationNote)), "")


def _join(path: str, name: str) -> str:
    return ".".join(part for part in (path, name) if part)
