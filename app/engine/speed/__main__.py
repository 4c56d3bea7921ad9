"""`python -m acceptor.app.engine.speed`: serve random models on a GPU and write what it took."""

import json
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from time import monotonic
from traceback import format_exc
from typing import Any

import click
import torch

from ...bench.kernels.machine import describe
from .milestones import ACCEPTANCE_RATE, Milestone, Subject, milestones
from .shapes import LARGE, REHEARSAL
from .table import as_markdown

DATA = Path("docs/data")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--backend", default="triton", show_default=True)
@click.option("--hugging-face/--no-hugging-face", default=True, show_default=True)
@click.option("--seconds", type=float, help="Begin nothing after this long, and serve no longer.")
@click.option(
    "--rehearse", is_flag=True, help="Tiny models on the CPU: whether it runs, not how fast."
)
@click.option("--read", type=_FILE, help="Show an earlier run's JSON again.")
@click.option(
    "--kernels",
    type=_FILE,
    help="With --read, what `acceptor bench kernels` wrote of the same GPU: the better of two "
    "readings of its memory counts.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=DATA,
    show_default=True,
)
def main(
    backend: str,
    hugging_face: bool,
    seconds: float | None,
    rehearse: bool,
    read: Path | None,
    kernels: Path | None,
    out: Path,
) -> None:
    """Needs a CUDA device with 60 GB; takes about two minutes.

    The most important comes first, and what has been measured is written after every part. A part
    that fails does not keep the others from running.
    """
    if rehearse and out == DATA:
        raise click.UsageError("--rehearse: expected an --out beside the documentation's figures")
    if kernels is not None and read is None:
        raise click.UsageError("--kernels: expected --read, too")
    out.mkdir(parents=True, exist_ok=True)
    if read is not None:
        _write(_again(read, kernels), out)
        return
    device = torch.device("cpu" if rehearse else "cuda")
    subject = Subject(
        sizes=REHEARSAL if rehearse else LARGE,
        device=device,
        backend=backend,
        deadline=inf if seconds is None else monotonic() + seconds,
    )
    record: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": "CPU, rehearsal" if rehearse else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "machine": describe(device),
        "backend": backend,
        "acceptance_rate": ACCEPTANCE_RATE,
        "missing": {},
    }
    for milestone in milestones(subject.sizes.several, hugging_face=hugging_face):
        _reach(milestone, subject, record)
        _write(record, out)
    click.echo(as_markdown(record))
    if record["missing"]:
        raise SystemExit(1)


def _again(read: Path, kernels: Path | None) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(read.read_text(encoding="utf-8"))
    if kernels is not None:
        other = json.loads(kernels.read_text(encoding="utf-8"))
        if other["machine"] != record.get("machine"):
            raise click.UsageError(
                f"--kernels: expected the machine of {read}, got {other['machine']}"
            )
        record["bandwidth_of_kernels"] = other["bandwidth"]
    return record


def _reach(milestone: Milestone, subject: Subject, record: dict[str, Any]) -> None:
    began = monotonic()
    if began > subject.deadline:
        _miss(milestone, record, "no time left")
        return
    try:
        found = milestone.measure(subject, record)
    except Exception as error:  # noqa: BLE001, the next part is worth having, whatever broke this
        click.echo(format_exc(), err=True)
        _miss(milestone, record, f"{type(error).__name__}: {error}")
        return
    click.echo(f"{milestone.name}, {monotonic() - began:.1f} s: {found}")


def _miss(milestone: Milestone, record: dict[str, Any], why: str) -> None:
    record["missing"][milestone.name] = why
    click.echo(f"{milestone.name}: {why}", err=True)


def _write(record: dict[str, Any], out: Path) -> None:
    if "rows" not in record:
        # What an earlier run left says more.
        return
    (out / "engine.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (out / "engine.md").write_text(as_markdown(record), encoding="utf-8")


if __name__ == "__main__":
    main()
