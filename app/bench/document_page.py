"""The page of a pair that does not come with the package: how it was made, and its tables.

`acceptor.app.bench.document --record` writes it; the bundled pair has a page written by hand. This
module refuses to repeat what that one explains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..training.report import agreement_table, measures_table, read_record
from .document_text import PAGE
from .markdown import table

_SIZES = {
    "layers": "num_layers",
    "hidden size": "hidden_size",
    "heads": "num_heads",
    "key/value heads": "num_kv_heads",
    "intermediate size": "intermediate_size",
}


def record_file(name: str, out: Path) -> Path:
    """Where the record of a pair's training is kept, beside what was measured of it."""
    return out / f"pair-{name}.json"


def write_page(name: str, out: Path) -> None:
    """Write benchmark-NAME.md above the folder of the tables."""
    record = read_record(record_file(name, out))
    text = PAGE.format(
        name=name,
        how=_how(record),
        sizes=table(["", "target", "draft"], _sizes(record["recipe"])).strip(),
        measures=measures_table(record),
        agreement=agreement_table(record),
    )
    (out.parent / f"benchmark-{name}.md").write_text(text, encoding="utf-8")


def _how(record: dict[str, Any]) -> str:
    """One paragraph."""
    steps = {name: curve[-1]["step"] for name, curve in record["curves"].items()}
    kept = min(record["curves"]["target"], key=lambda point: point["held_out_loss"])["step"]
    rows = {name: record["recipe"][f"{name}_rows_per_step"] for name in steps}
    names = " and ".join(source["name"] for source in record["sources"])
    return (
        f"It was trained on {record['date']} on {record['device']} within {record['seconds']:.0f} "
        f"seconds, on {record['training_tokens']:,} tokens of {names}: the target for "
        f"{steps['target']:,} steps of {rows['target']} rows of "
        f"{record['recipe']['context_length']:,} tokens, of which step {kept:,} was kept; the "
        f"draft for {steps['draft']:,} steps of {rows['draft']} rows."
    )


def _sizes(recipe: dict[str, Any]) -> list[list[str]]:
    return [
        [title, *(str(recipe[model][key]) for model in ("target", "draft"))]
        for title, key in _SIZES.items()
    ]
