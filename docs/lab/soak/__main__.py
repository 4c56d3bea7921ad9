"""`python -m lab.soak`: 100,000 requests to the bundled pair, and a record of how they ended."""

import json
import platform
from datetime import UTC, datetime
from pathlib import Path

import click
import torch

from lab.soak.load import Soak, bundled_pair, few_grammars


@click.command()
@click.option("--num-requests", default=100_000, show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("docs/data/soak.json"), show_default=True
)
def main(num_requests: int, out: Path) -> None:
    """Serve requests and record how they ended; takes about an hour."""
    torch.set_num_threads(1)
    wired = bundled_pair()
    soak = Soak(wired.decoder, num_slots=64, num_different=1000, grammars=few_grammars(wired))
    soak.serve(num_requests)
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, torch {torch.__version__}",
        "num_requests": num_requests,
        "ends": dict(sorted(soak.ends.items())),
        "masked": dict(sorted(soak.masked.items())),
        "broken_texts": soak.texts["broken"],
        "unfinished": soak.num_unfinished,
        "wrong": len(soak.wrong),
        "resident_kilobytes": soak.resident,
    }
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
