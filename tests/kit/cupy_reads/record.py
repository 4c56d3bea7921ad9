"""A run as values: when, where, how long, and a line for each case; refuses to say more.

It has one case on each line of the file.
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from attrs import asdict

from acceptor.app.bench.kernels.machine import describe
from acceptor.app.bench.kernels.workload import Workload


def as_values(workload: Workload) -> dict[str, Any]:
    """What a line says of its workload."""
    return {
        "num_reqs": workload.num_reqs,
        "num_spec_tokens": workload.num_spec_tokens,
        "policy": workload.policy,
        "recipe": asdict(workload.recipe),
    }


def record_of(lines: Sequence[dict[str, Any]], start: float) -> dict[str, Any]:
    """Of a run that began at `start` of the monotonic clock and ends now."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(torch.device("cuda")),
        "seconds": round(time.monotonic() - start, 1),
        "lines": list(lines),
    }


def write(record: dict[str, Any], path: Path) -> None:
    """As JSON."""
    about = json.dumps({**record, "lines": []}, indent=1)
    lines = ",\n  ".join(map(json.dumps, record["lines"]))
    path.write_text(about.replace("[]", f"[\n  {lines}\n ]") + "\n", encoding="utf-8")
