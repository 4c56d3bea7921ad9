"""The results of a benchmark: its runs, what they were given to do, where and when.

As JSON they can be compared with a later run. They hold no machine's name and no paths.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from attrs import asdict, field, frozen
from cattrs import Converter, transform_error
from cattrs.errors import BaseValidationError
from cattrs.v import format_exception

from ...core.errors import AcceptorError, ConfigError
from .figures import Figures
from .files import read_object, write_file
from .sweep import Load, Setting


@frozen
class BenchRun:
    """One setting and its figures."""

    setting: Setting
    figures: Figures


@frozen(kw_only=True)
class BenchResults:
    """All runs of one benchmark.

    Attributes:
        date: of the day, in UTC.
        machine: device, versions and the target's dtype.
        models: names of target and draft.
        load: what every run was given to do.
        runs: in the order of the sweep.
        sampling: what shapes the target's law beside the temperature, where it is not the default.
    """

    date: str
    machine: Mapping[str, str]
    models: Mapping[str, str]
    load: Load
    runs: tuple[BenchRun, ...]
    sampling: Mapping[str, float] = field(factory=dict)


def write_results(results: BenchResults, path: Path) -> None:
    """Write a file that `read_results` reads.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_file(path, json.dumps(asdict(results), indent=1, ensure_ascii=False) + "\n")


def read_results(path: Path) -> BenchResults:
    """What an earlier benchmark wrote.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    content = read_object(path)
    try:
        return Converter().structure(content, BenchResults)
    except (BaseValidationError, TypeError, ValueError) as error:
        problem = first_problem(error)
        raise ConfigError(f"{path}: expected what bench --json writes: {problem}") from None


def first_problem(error: Exception) -> str:
    """What is wrong, and where, in an error that cattrs raised."""
    return str(transform_error(error, format_exception=_text)[0]).replace(" @ $", " at ")


def _text(error: BaseException, kind: type | None) -> str:
    return str(error) if isinstance(error, AcceptorError) else format_exception(error, kind)
