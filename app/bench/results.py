"""What a benchmark leaves behind: its runs, what they were given to do, where and when.

As JSON it can be compared with a later one. This module refuses to hold a machine's name or paths.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, frozen
from cattrs import Converter
from cattrs.errors import BaseValidationError

from ...core.errors import ConfigError
from .figures import Figures
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
        machine: device and versions.
        models: names of target and draft.
        load: what every run was given to do.
        runs: in the order of the sweep.
    """

    date: str
    machine: Mapping[str, str]
    models: Mapping[str, str]
    load: Load
    runs: tuple[BenchRun, ...]


def write_results(results: BenchResults, path: Path) -> None:
    """Write a file that `read_results` reads.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = json.dumps(asdict(results), indent=1, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: expected a file that can be written, got {error}") from None


def read_results(path: Path) -> BenchResults:
    """What an earlier benchmark wrote.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected JSON, got {error}") from None
    try:
        return Converter().structure(content, BenchResults)
    except (BaseValidationError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path}: expected what --json writes, got {type(error).__name__}"
        ) from None
