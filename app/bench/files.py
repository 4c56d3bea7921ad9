"""Writes and reads the files of runs: results as JSON, and texts."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from attrs import AttrsInstance, asdict

from ...adapters.error_text import read_named, unfit
from ...core import ConfigError
from ..structure import structured

Record = TypeVar("Record", bound=AttrsInstance)
_NUMBERS = re.compile(r"\[\s+([^\[\]{}\"]+?)\s+\]")


@contextmanager
def config_error_if_unwritable(path: Path) -> Iterator[None]:
    """Raise `ConfigError` if the system does not let a file be written."""
    try:
        yield
    except OSError as error:
        raise unfit(path, "a file that can be written", error, ConfigError) from None


def make_room(*paths: Path | None) -> None:
    """Make the folders of output files, and check that they can be written; None is no file."""
    for path in filter(None, paths):
        with config_error_if_unwritable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                # Resolved, so that a link stays a link.
                path.touch()
                path.resolve().unlink()
            elif path.is_file():
                path.open("ab").close()


def write_file(path: Path, text: str) -> None:
    """Write a text in UTF-8, in a folder that is made if necessary."""
    with config_error_if_unwritable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_record(path: Path, record: AttrsInstance) -> None:
    """Write an attrs instance as JSON for `read_record`; a list of numbers stays on one line.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = json.dumps(asdict(record), indent=1, ensure_ascii=False)
    on_one_line = _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
    write_file(path, on_one_line + "\n")


def write_outputs(record: AttrsInstance, text: str, options: Mapping[str, Any]) -> None:
    """Write the files of `--json` and `--markdown`."""
    if options["json_file"] is not None:
        write_record(options["json_file"], record)
    if options["markdown_file"] is not None:
        write_file(options["markdown_file"], text)


def read_record(path: Path, kind: type[Record], command: str) -> Record:
    """Read what a command wrote with `--json`; anything else raises `ConfigError`."""
    content = read_named(path, "JSON", json.loads)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return structured(content, kind, f"{path}: expected what {command} --json writes")
