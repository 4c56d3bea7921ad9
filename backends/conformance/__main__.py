"""The command: `python -m acceptor.backends.conformance --backend NAME`; see `--help`.

It refuses to end with 0 when something is unexplained.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from ...core.errors import AcceptorError, InvalidInputError
from .campaign import Campaign
from .case import Case
from .loading import device_for, load_backend
from .record import Record
from .run import CHUNK, run_case
from .strategies import POLICIES
from .table import table
from .tally import Tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print what was found, and perhaps write it; 0 if the backend conforms."""
    wanted = _parser().parse_args(arguments)
    # Small tensors gain nothing from threads, and workers would fight over cores.
    torch.set_num_threads(1)
    try:
        wanted.device = device_for(wanted.backend, wanted.device)
        tally = _one_case(wanted) if wanted.case else _many_cases(wanted)
    except AcceptorError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(table(tally))
    return 0 if tally.is_conformant else 1


def _one_case(wanted: argparse.Namespace) -> Tally:
    case, tally = Case.from_json(wanted.case), Tally()
    device = torch.device(wanted.device)
    tally.add_case(case, run_case(case, load_backend(wanted.backend), device))
    return tally


def _many_cases(wanted: argparse.Namespace) -> Tally:
    campaign = Campaign(
        backend=wanted.backend,
        device=wanted.device,
        policies=tuple(wanted.policy or POLICIES),
        largest_vocabulary=wanted.max_vocab_size,
        num_workers=wanted.workers,
    )
    record = _so_far(wanted, campaign)
    numbers = record.missing(wanted.first_chunk, -(-wanted.batches // CHUNK))
    for number, found in zip(numbers, campaign.chunks(numbers, wanted.batches), strict=True):
        record = record.including(number, found)
        if wanted.json is not None:
            record.write(wanted.json)
        if found.failures:
            sys.stdout.write(f"{campaign.smallest_failure(number, CHUNK)}\n")
            break
    return record.tally


def _so_far(wanted: argparse.Namespace, campaign: Campaign) -> Record:
    if not wanted.resume:
        corners = Tally() if wanted.first_chunk else campaign.corners()
        return Record(wanted.backend, wanted.device, (), corners)
    if wanted.json is None:
        raise InvalidInputError("--continue: expected --json FILE beside it, got none")
    record = Record.read(wanted.json)
    if (record.backend, record.device) != (wanted.backend, wanted.device):
        raise InvalidInputError(
            f"{wanted.json}: expected a record of {wanted.backend} on {wanted.device}, "
            f"got {record.backend} on {record.device}"
        )
    if record.beside is not None:
        raise InvalidInputError(
            f"{wanted.json}: expected a record of one backend, got {record.backend} with "
            f"{record.beside.backend} beside it"
        )
    return record


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m acceptor.backends.conformance",
        description="Hold a backend to the contract.",
    )
    parser.add_argument("--backend", required=True, help="registered name or package.module:Class")
    parser.add_argument("--batches", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--device", help="where (default: cpu, or cuda if it needs one)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument(
        "--policy", action="append", choices=sorted(POLICIES), help="only this one; repeatable"
    )
    parser.add_argument(
        "--max-vocab-size", type=int, default=10**9, metavar="V", help="for slow simulators"
    )
    parser.add_argument("--first-chunk", type=int, default=0, help="other random batches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    parser.add_argument(
        "--continue", action="store_true", dest="resume", help="add chunks that FILE lacks"
    )
    parser.add_argument("--case", metavar="JSON", help="only this case, as a report printed it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
