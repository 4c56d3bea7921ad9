"""Reads the records that the conformance kit writes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceptor.backends.conformance.findings import Difference, Findings
from acceptor.backends.conformance.record import Record


def read_record(path: Path) -> Record:
    """What `Record.write` wrote."""
    values = json.loads(path.read_text(encoding="utf-8"))
    return Record(
        backends=tuple(values["backends"]),
        device=values["device"],
        found=tuple(map(_findings, values["found"])),
        machine=values["machine"],
        versions=values["versions"],
    )


def _findings(values: Mapping[str, Any]) -> Findings:
    differences = tuple(Difference(**each) for each in values["differences"])
    return Findings(**{**values, "differences": differences})
