"""The command behind `make prove`; see `--help`. It refuses to pass over a claim that fails."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from kit.proof import figures, record, samples, tables
from kit.proof.verdict import Claim, claims

DOCS = Path(__file__).parents[3] / "docs"


@click.command()
@click.option("--backend", default="reference", help="Registered name or package.module:Class.")
@click.option("--device", default="cpu", help="Where samples are drawn.")
@click.option("--short", is_flag=True, help="Small samples.")
@click.option("--out", type=click.Path(path_type=Path), default=DOCS, help="Folder of the page.")
def main(backend: str, device: str, short: bool, out: Path) -> None:
    """Prove the law of every policy, and write what was found for the documentation.

    Enumeration, planted bugs and the bundled pair concern the reference on a CPU; any other backend
    or device repeats what is sampled.
    """
    torch.set_num_threads(1)
    console, where = Console(highlight=False), torch.device(device)
    whole = backend == "reference" and where.type == "cpu"
    size = samples.SHORT if short else samples.FULL if where.type == "cpu" else samples.ON_A_GPU
    found = _found(backend, where, size, console, whole=whole, short=short)
    name = "proof" if whole else f"proof-{backend.rpartition(':')[2]}-{where.type}"
    record.write(out / "data" / f"{name}.json", found)
    _write_page(out)
    judged = claims(found)
    _print(console, judged)
    sys.exit(0 if all(claim.holds for claim in judged) else 1)


def _found(
    backend: str,
    device: torch.device,
    size: samples.Size,
    console: Console,
    *,
    whole: bool,
    short: bool,
) -> dict[str, Any]:
    work: dict[str, Callable[[], record.Rows]] = {
        "edges": lambda: record.edge_rows(backend, device),
        "samples": lambda: record.sample_rows(backend, device, size),
        "large": lambda: record.large_rows(backend, device, size),
    }
    if whole:
        work |= {
            "exact": record.exact_rows,
            "losses": record.loss_rows,
            "mutants": record.mutant_rows,
            "lengths": lambda: record.length_rows(24 if short else 256),
        }
    found: dict[str, Any] = {"backend": backend, "machine": record.machine(device)}
    for name, measure in work.items():
        with console.status(f"{name} ..."):
            found[name] = measure()
    return found


def _write_page(out: Path) -> None:
    data = out / "data"
    if not (data / "proof.json").exists():
        return
    main_record = record.read(data / "proof.json")
    others = [record.read(path) for path in sorted(data.glob("proof-*.json"))]
    for name, text in tables.fragments(main_record, others).items():
        (data / name).write_text(text, encoding="utf-8")
    figures.draw(main_record, out / "figures")


def _print(console: Console, judged: list[Claim]) -> None:
    table = Table("claim", "cases", "worst", "limit", "")
    for claim in judged:
        verdict = "holds" if claim.holds else "[bold red]fails[/]"
        table.add_row(claim.name, str(claim.cases), claim.worst, claim.limit, verdict)
    console.print(table)


if __name__ == "__main__":
    main()
