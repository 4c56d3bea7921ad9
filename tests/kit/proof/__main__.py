"""The command behind `make prove`; see `--help`. It exits with 1 if a claim fails."""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import click
import torch
from attrs import frozen
from rich.console import Console
from rich.table import Table

from kit.proof import figures, record, samples, tables
from kit.proof.pace import Pace
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
@click.option("--draws", type=int, help="Draws from the large vocabulary, each way.")
@click.option("--runs", type=int, help="Decode runs of each policy, at most.")
@click.option("--seconds", type=float, help="From then on a backend's samples are cut short.")
@click.option(
    "--part", "parts", multiple=True, help="Only this part, the rest as recorded; repeatable."
)
@click.option("--pages", is_flag=True, help="Prove nothing: write the pages from the records.")
@click.option("--out", type=click.Path(path_type=Path), default=DOCS, help="Folder of the page.")
def main(
    backends: tuple[str, ...],
    device: str,
    short: bool,
    draws: int | None,
    runs: int | None,
    seconds: float | None,
    parts: tuple[str, ...],
    pages: bool,
    out: Path,
) -> None:
    """Prove the law of every policy, and write what was found for the documentation.

    Enumeration, planted bugs and the bundled pair concern the reference on a CPU; any other backend
    or device repeats what is sampled. What was found until then stays if a run is stopped, and a
    sample that is cut short is tested with what was drawn of it.
    """
    torch.set_num_threads(1)
    console, judged = Console(highlight=False), list[Claim]()
    where = torch.device(device)
    size = samples.size_for(where, short=short).at_most(draws, runs)
    for backend in () if pages else backends:
        wanted = Wanted(where, size, 24 if short else 256, parts, out)
        found = _prove(backend, wanted, Pace(seconds, partial(console.print, soft_wrap=True)))
        judged += claims(found)
        console.print(f"{backend} on {device}", _table(claims(found)))
    _write_page(out)
    sys.exit(0 if all(claim.holds for claim in judged) else 1)


@frozen
class Wanted:
    """What was asked for.

    Attributes:
        device: where samples are drawn.
        size: how many.
        num_tokens: how many the bundled pair decodes for each prompt.
        parts: only these; all if empty.
        out: folder of the page.
    """

    device: torch.device
    size: samples.Size
    num_tokens: int
    parts: tuple[str, ...]
    out: Path


def _prove(backend: str, wanted: Wanted, pace: Pace) -> record.Row:
    whole = record.is_whole(backend, wanted.device)
    work = _sampled_parts(backend, wanted, pace) | (_other_parts(wanted) if whole else {})
    path = wanted.out / "data" / "proof.json"
    known = record.known(path, backend, wanted.device) if wanted.parts else {}
    found: record.Record = {key: [] for key in work} | known
    found |= {"backend": backend, "machine": record.machine(wanted.device)}
    for part in wanted.parts or work:
        found[part] = []
        for row in work[part]():
            found[part].append(row)
            record.keep(path, found, wanted.device)
            pace.say(f"{pace.elapsed:.1f} s, {backend}, {part}: {record.name_of(row)}")
    return found


Parts = dict[str, Callable[[], Iterable[record.Row]]]


def _sampled_parts(backend: str, wanted: Wanted, pace: Pace) -> Parts:
    device, size = wanted.device, wanted.size
    return {
        "edges": lambda: record.edge_rows(backend, device),
        "large": lambda: record.large_rows(backend, device, size, pace),
        "samples": lambda: record.sample_rows(backend, device, size, pace),
    }


def _other_parts(wanted: Wanted) -> Parts:
    return {
        "exact": record.exact_rows,
        "losses": record.loss_rows,
        "mutants": record.mutant_rows,
        "lengths": lambda: record.length_rows(wanted.num_tokens),
    }


def _write_page(out: Path) -> None:
    found = record.read(out / "data" / "proof.json")
    if "exact" in found:
        (out / "data" / "proof.md").write_text(tables.markdown(found), encoding="utf-8")
        figures.draw(found, out / "figures")


def _table(judged: list[Claim]) -> Table:
    table = Table("claim", "cases", "worst", "limit", "")
    for claim in judged:
        verdict = "holds" if claim.holds else "[bold red]fails[/]"
        table.add_row(claim.name, str(claim.cases), claim.worst, claim.limit, verdict)
    return table


if __name__ == "__main__":
    main()
