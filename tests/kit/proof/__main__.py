"""The command behind `make prove`; see `--help`. It exits with 1 if a claim fails.

Enumeration, planted bugs and the bundled pair concern the reference on a CPU; any other backend or
device repeats what is sampled. What was found until then stays if a run is stopped.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from attrs import evolve

from acceptor.backends.conformance import load_backend
from kit.proof import record, tables
from kit.proof.record import Sampled

DATA = Path(__file__).parents[3] / "docs" / "data"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove, print, write; 0 if all claims hold."""
    wanted = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    device, content = torch.device(wanted.device), True
    deadline = None if wanted.seconds is None else time.monotonic() + wanted.seconds
    for name in () if wanted.pages else wanted.backend or ["reference"]:
        size = record.ON_A_CPU if device.type == "cpu" else record.ON_A_GPU
        size = evolve(
            size,
            runs=wanted.runs or size.runs,
            runs_elsewhere=min(wanted.runs or size.runs_elsewhere, size.runs_elsewhere),
            draws=wanted.draws or size.draws,
        )
        sampled = Sampled(name, load_backend(name), device, size, deadline)
        found = _prove(sampled, wanted.part, wanted.json)
        for claim in record.claims(found):
            sys.stdout.write(f"{name} on {device}: {claim}\n")
            content &= claim.holds
    everything = record.read(wanted.json)
    if "exact" in everything:
        wanted.json.with_suffix(".md").write_text(tables.markdown(everything), encoding="utf-8")
    return 0 if content else 1


def _prove(sampled: Sampled, chosen: Sequence[str], path: Path) -> record.Record:
    work: dict[str, Callable[[], Iterable[record.Row]]] = {
        "edges": sampled.edge_rows,
        "large": sampled.large_rows,
        "samples": sampled.rows,
    }
    if sampled.is_whole:
        work |= {
            "exact": record.exact_rows,
            "losses": record.loss_rows,
            "mutants": record.mutant_rows,
            "lengths": record.length_rows,
        }
    known = record.known(path, sampled.name, sampled.device) if chosen else {}
    found: record.Record = {part: [] for part in work} | known | record.about(sampled)
    for part in chosen or work:
        found[part] = []
        for row in work[part]():
            found[part].append(row)
            record.keep(path, found, sampled)
        sys.stdout.write(f"{sampled.name}: {part}, {len(found[part])} rows\n")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kit.proof", description=__doc__)
    add = parser.add_argument
    add("--backend", action="append", help="registered name or package.module:Class; repeatable")
    add("--device", default="cpu", help="where samples are drawn")
    add("--draws", type=int, help="draws from the large vocabulary, each way")
    add("--runs", type=int, help="decode runs of each policy, at most")
    add("--seconds", type=float, help="from then on samples are cut short")
    add("--part", action="append", help="only this part, the rest as recorded; repeatable")
    add("--pages", action="store_true", help="prove nothing: write the page from the record")
    add("--json", type=Path, default=DATA / "proof.json", help="record; tables beside it as .md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
