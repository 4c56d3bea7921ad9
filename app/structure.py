"""Turns plain tables into attrs classes, without converting any value to another type.

It reads configuration files, and the records that commands write.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import GenericAlias, MappingProxyType, UnionType
from typing import Any, TypeVar, get_args, get_origin

from attrs import fields_dict, has
from cattrs import Converter, transform_error
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn
from cattrs.v import format_exception

from ..core import POLICIES, AcceptorError, ConfigError, InvalidInputError
from ..core.sampling_params import LogitBias
from .policies import PolicySettings, fixed_settings, settings_class

Kind = TypeVar("Kind")
SCALARS: Mapping[type, tuple[str, type | UnionType]] = {
    str: ("a string", str),
    bool: ("true or false", bool),
    int: ("an integer", int),
    float: ("a number", int | float),
}


def structured(
    table: object, kind: type[Kind], source: str, flags: Mapping[str, str] = MappingProxyType({})
) -> Kind:
    """Make a value from a table; errors name its source, or a setting's flag (path -> flag).

    Raises:
        ConfigError: a key is unknown, or a value is of another type or out of its range.
    """
    try:
        return _converter().structure(table, kind)
    except BaseValidationError as error:
        path, problem = _first_problem(error)
        raise ConfigError(f"{flags.get(path, f'{source}: {path}')}: {problem}") from None
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _converter() -> Converter:
    converter = Converter()
    for kind in SCALARS:
        converter.register_structure_hook(kind, _scalar)
    converter.register_structure_hook_func(
        lambda kind: isinstance(kind, type) and issubclass(kind, Enum), _choice
    )
    converter.register_structure_hook_func(_is_array, partial(_array, converter))
    converter.register_structure_hook_func(lambda kind: kind == LogitBias, _logit_bias)
    converter.register_structure_hook_factory(has, lambda kind: _table(converter, kind))
    converter.register_structure_hook_func(
        lambda kind: kind in (PolicySettings, PolicySettings | None), partial(_policy, converter)
    )
    return converter


def _first_problem(error: Exception) -> tuple[str, str]:
    """The place and the text of the first problem in an error that a converter raised."""
    problem, _, path = transform_error(error, format_exception=_describe)[0].rpartition(" @ $")
    name, has_name, rest = problem.partition(": ")
    if not has_name or " " in name:
        return path.removeprefix("."), problem
    return f"{path}.{name}".removeprefix("."), rest


def _describe(problem: BaseException, kind: type | None) -> str:
    if isinstance(problem, ForbiddenExtraKeysError):
        known = ", ".join(fields_dict(problem.cl)) or "no setting"
        unknown = min(problem.extra_fields)
        return f"{unknown}: expected {known} here, got an unknown setting"
    return str(problem) if isinstance(problem, AcceptorError) else format_exception(problem, kind)


def _scalar(value: object, kind: type) -> object:
    expected, accepted = SCALARS[kind]
    # True is an integer in Python, but not to readers of the file.
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"expected {expected}, got {value!r}")
    return value


def _choice(value: object, kind: type[Enum]) -> Enum:
    names = [member.value for member in kind]
    if value not in names:
        raise ConfigError(f"expected {' or '.join(names)}, got {value!r}")
    return kind(value)


def _is_array(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _array(converter: Converter, value: object, kind: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"expected an array, got {value!r}")
    # An error about a list names the place in it.
    items: Any = GenericAlias(list, get_args(kind)[:1])
    return tuple(converter.structure(value, items))


def _logit_bias(value: object, _: object) -> LogitBias:
    if not isinstance(value, Mapping) or not all(str(key).isdecimal() for key in value):
        raise ConfigError(f"expected a table from token ids to numbers, got {value!r}")
    for bias in value.values():
        _scalar(bias, float)
    return tuple((int(token_id), bias) for token_id, bias in value.items())


def _table(converter: Converter, kind: type[Any]) -> Callable[[object, Any], Any]:
    structure_fields = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)
    return lambda value, _: structure_fields(_copied(value), kind)


def _copied(table: object) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"expected a table, got {table!r}")
    return dict(table)


def _policy(converter: Converter, value: object, _: object) -> PolicySettings:
    settings = _copied(value)
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in POLICIES:
        raise InvalidInputError(f"name: expected one of {', '.join(POLICIES)}, got {name!r}")
    fixed = fixed_settings(name)
    for key in settings.keys() & fixed.keys():
        raise InvalidInputError(f"{key}: expected none beside {name}, got {settings[key]!r}")
    policy: PolicySettings = converter.structure(settings | fixed, settings_class(name))
    return policy
