"""The command: `python -m acceptor.backends.conformance --backend NAME`; see `--help`."""

import argparse
import math
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from attrs import evolve

from ...core import POLICIES, AcceptorError, InvalidInputError
from ...core.checks import MAX_INT32, check_integer, check_number
from .calls import device_for
from .campaign import CHUNK, Campaign
from .case import Case, Generator
from .corners import corners
from .findings import Record, listing, table
from .run import Check

FORMS_ON_GPU = 48
"""How many kinds of batches a GPU run has by default: each needs kernels of its own."""
LEAST = {"batches": 0, "workers": 1, "max_vocab_size": 1, "forms": 0, "first_chunk": 0, "chunk": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the findings and, if asked, write them; 0 if the backends conform."""
    wanted = _parser().parse_args(arguments)
    # Small tensors gain nothing from threads, and workers would compete for cores.
    torch.set_num_threads(1)
    start = time.time()
    try:
        wanted.device = device_for(wanted.backend, wanted.device)
        campaign = _campaign(wanted, start + wanted.seconds)
        record = Record(campaign.backends, wanted.device, campaign.nothing)
        if wanted.case is not None:
            case = Case.from_json(wanted.case)
            record = record.including(None, campaign.shown(iter([(wanted.case, Check(case))])))
        else:
            record = _many_cases(wanted, campaign, record)
    except AcceptorError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 128 + signal.SIGINT  # as shells do
    _show(record)
    sys.stdout.write(f"{time.time() - start:.0f} s\n{record.verdict}\n")
    return 0 if record.is_conformant else 1


def _show(record: Record) -> None:
    sys.stdout.write("".join((table(record.names, record.found), *map(listing, record.found))))


def _campaign(wanted: argparse.Namespace, deadline: float) -> Campaign:
    if wanted.forms is None:
        wanted.forms = FORMS_ON_GPU if torch.device(wanted.device).type == "cuda" else 0
    for name, least in LEAST.items():
        check_integer(f"--{name.replace('_', '-')}", getattr(wanted, name), least)
    check_number("--seconds", min(wanted.seconds, MAX_INT32), 0, open_below=True)
    file: Path | None = wanted.json
    if wanted.case is not None and (file is not None or wanted.resume):
        got = "--continue" if file is None else f"--json {file}"
        raise InvalidInputError(
            f"--case: expected no --json and no --continue beside it, got {got}"
        )
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise InvalidInputError(f"--json: expected a file in a folder that is there, got {file}")
    if file is not None and file.suffix == ".md":
        raise InvalidInputError(
            f"--json: expected no .md, which the table beside it has, got {file}"
        )
    return Campaign(
        backends=(wanted.backend, *([wanted.beside] if wanted.beside else [])),
        device=wanted.device,
        generator=Generator(tuple(wanted.policy or POLICIES), wanted.max_vocab_size, wanted.forms),
        num_workers=wanted.workers,
        chunk=wanted.chunk,
        deadline=deadline,
    )


def _many_cases(wanted: argparse.Namespace, campaign: Campaign, record: Record) -> Record:
    if wanted.resume:
        record = _so_far(wanted.json, record)
    first = max(wanted.first_chunk, record.next_chunk)
    # Only the first run of a record includes the corners.
    if first == 0:
        record = evolve(record, corners_left=sum(1 for _ in corners()))
    try:
        for number, found in campaign.run(first, wanted.batches, with_corners=first == 0):
            record = record.including(number, found)
            if wanted.json is not None:
                record.write(wanted.json)
            failures = found[0].unexplained if number is not None and wanted.beside is None else ()
            if failures and math.isinf(wanted.seconds):
                sys.stdout.write(listing(campaign.smallest_failure(failures[0])))
                break
    except AcceptorError:
        if record.found[0].num_batches:
            _show(record)
        raise
    return record


def _so_far(path: Path | None, nothing: Record) -> Record:
    if path is None:
        raise InvalidInputError("--continue: expected --json FILE beside it, got none")
    record = Record.read(path)
    for name in ("names", "device", "machine", "versions"):
        expected, got = getattr(nothing, name), getattr(record, name)
        if expected != got:
            raise InvalidInputError(f"{path}: {name}: expected {expected}, got {got}")
    return record


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m acceptor.backends.conformance",
        description="Hold a backend to the contract.",
    )
    add = parser.add_argument
    add("--backend", required=True, help="registered name or package.module:Class")
    add("--beside", metavar="BACKEND", help="a second one on the same batches")
    add("--batches", type=int, default=1000, help="how many (default 1000)")
    add("--device", help="where (default: cpu, or cuda if it needs one)")
    add("--workers", type=int, default=1, help="processes (default 1)")
    add("--policy", action="append", choices=sorted(POLICIES), help="only this one; repeatable")
    add("--max-vocab-size", type=int, default=10**9, metavar="V", help="for slow simulators")
    add("--forms", type=int, help="kinds of batches, which bounds compiling (default: 48 on a GPU)")
    add("--seconds", type=float, default=math.inf, help="stop early after so many")
    add("--first-chunk", type=int, default=0, help="other random batches")
    add("--chunk", type=int, default=CHUNK, help=f"batches that share a seed (default {CHUNK})")
    add("--json", type=Path, metavar="FILE", help="write what was found")
    add("--continue", action="store_true", dest="resume", help="add chunks that FILE lacks")
    add("--case", metavar="JSON", help="only this case, as a report printed it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
