"""The record of `python -m lab.gpu`: one JSON file, and a table beside it."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST_CHARACTERS = 120
HEADER = "| part | outcome | what it said |\n|---|---|---|\n"


def keep(path: Path, name: str, outcome: dict[str, Any]) -> None:
    """Replace a part's earlier outcome, and write the table beside the record."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    content = dict(sorted((content | {name: outcome}).items()))
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(table(content), encoding="utf-8")


def table(content: dict[str, Any]) -> str:
    """A table for each machine and day, and in it a row for each part."""
    rows: dict[str, list[str]] = {}
    for name, part in content.items():
        outcome = f"{part['outcome']} after {part['seconds']} s"
        row = f"| {name} | {outcome} | {_told(part['said'])} |\n"
        rows.setdefault(f"{_where(part['machine'])}, {part['date']}", []).append(row)
    return "\n".join(f"{where}:\n\n{HEADER}{''.join(of)}" for where, of in rows.items())


def _where(machine: dict[str, str]) -> str:
    versions = (f"{name} {machine[name]}" for name in ("driver", "torch") if name in machine)
    return ", ".join((machine["device"], *versions))


def _told(said: Sequence[str]) -> str:
    lines = (" ".join(line.replace("|", " ").split()) for line in said)
    return "; ".join(line for line in lines if line)


def without_paths(lines: Sequence[str]) -> list[str]:
    """The beginnings of lines, up to the first path of the machine."""
    without = (re.sub(r"(?<![\w.\]])/[\w.+-][^\s'\"]*", "…", line) for line in lines)
    return [line[:MOST_CHARACTERS] for line in without]
