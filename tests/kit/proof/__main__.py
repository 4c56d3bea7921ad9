"""The command behind `make prove`; see `--help`. It refuses to pass over a claim that fails."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from kit.proof import figures, record, samples, tables
from kit.proof.verdict import Claim, claims

DOCS = Path(__file__).parents[3] / "docs"


@click.command()
@click.option(
    "--backend",
    "backends",
    multiple=True,
    default=["reference"],
    help="Registered name or package.module:Class; repeatable.",
)
@click.option("--device", default="cpu", help="Where samples are drawn.")
@click.option("--short", is_flag=True, help="Small samples.")
@click.option(
    "--part", "parts", multiple=True, help="Only this part, the rest as recorded; repeatable."
)
@click.option("--pages", is_flag=True, help="Prove nothing: write the pages from the records.")
@click.option("--out", type=click.Path(path_type=Path), default=DOCS, help="Folder of the page.")
def main(
    backends: tuple[str, ...],
    device: str,
    short: bool,
    parts: tuple[str, ...],
    pages: bool,
    out: Path,
) -> None:
    """Prove the law of every policy, and write what was found for the documentation.

    Enumeration, planted bugs and the bundled pair concern the reference on a CPU; any other backend
    or device repeats what is sampled. What was found until then stays if a run is stopped.
    """
    torch.set_num_threads(1)
    console, judged = Console(highlight=False), list[Claim]()
    for backend in () if pages else backends:
        found = _prove(backend, torch.device(device), short, parts, out, console)
        judged += claims(found)
        console.print(f"{backend} on {device}", _table(claims(found)))
    _write_page(out)
    sys.exit(0 if all(claim.holds for claim in judged) else 1)


def _prove(
    backend: str,
    device: torch.device,
    short: bool,
    parts: tuple[str, ...],
    out: Path,
    console: Console,
) -> record.Row:
    whole = backend == "reference" and device.type == "cpu"
    size = samples.SHORT if short else samples.FULL if device.type == "cpu" else samples.ON_A_GPU
    name = "proof" if whole else f"proof-{backend.rpartition(':')[2]}-{device.type}"
    work = _sampled_parts(backend, device, size) | (_other_parts(short=short) if whole else {})
    path = out / "data" / f"{name}.json"
    found = {key: [] for key in work} | (record.read(path) if parts and path.exists() else {})
    found |= {"backend": backend, "machine": record.machine(device)}
    for part in parts or work:
        found[part] = []
        with console.status(f"{part} ..."):
            for row in work[part]():
                found[part].append(row)
                record.write(path, found)
    return found


Parts = dict[str, Callable[[], Iterable[record.Row]]]


def _sampled_parts(backend: str, device: torch.device, size: samples.Size) -> Parts:
    return {
        "edges": lambda: record.edge_rows(backend, device),
        "large": lambda: record.large_rows(backend, device, size),
        "samples": lambda: record.sample_rows(backend, device, size),
    }


def _other_parts(*, short: bool) -> Parts:
    return {
        "exact": record.exact_rows,
        "losses": record.loss_rows,
        "mutants": record.mutant_rows,
        "lengths": lambda: record.length_rows(24 if short else 256),
    }


def _write_page(out: Path) -> None:
    data = out / "data"
    if not (data / "proof.json").exists():
        return
    main_record = record.read(data / "proof.json")
    others = [record.read(path) for path in sorted(data.glob("proof-*.json"))]
    for name, text in tables.fragments(main_record, others).items():
        (data / name).write_text(text, encoding="utf-8")
    figures.draw(main_record, out / "figures")


def _table(judged: list[Claim]) -> Table:
    table = Table("claim", "cases", "worst", "limit", "")
    for claim in judged:
        verdict = "holds" if claim.holds else "[bold red]fails[/]"
        table.add_row(claim.name, str(claim.cases), claim.worst, claim.limit, verdict)
    return table


if __name__ == "__main__":
    main()
