"""`python -m kit.equivalence`: a backend against the contract's oracle over many random batches.

With a second backend beside it, both have every batch, and are compared with each other, too.
Writes the conformance kit's record. It refuses to end with 0 when something is unexplained.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

from acceptor.backends.conformance.beside import Beside
from acceptor.backends.conformance.record import Record
from acceptor.backends.conformance.table import table, table_beside
from acceptor.backends.conformance.tally import Tally
from acceptor.core.errors import InvalidInputError
from kit.equivalence.campaign import ALL_SIZES, CHUNK, Campaign


def main() -> int:
    """Run, print, write; 0 if all backends conform and agree."""
    wanted = _parser().parse_args()
    start = time.monotonic()
    if wanted.compile:
        _campaign(wanted, _record(wanted)).compile()
        sys.stdout.write(f"{time.monotonic() - start:.0f} s\n")
        return 0
    record = _record(wanted)
    for number, found in _campaign(wanted, record).run():
        record = record.including(number, *found.tallies)
        if wanted.json is not None:
            record.write(wanted.json)
    sys.stdout.write(table(record.tally))
    if record.beside is not None:
        sys.stdout.write(table_beside(record.backend, record.beside))
    sys.stdout.write(f"{time.monotonic() - start:.0f} s\n")
    return 0 if record.is_conformant and _num_compared(record) >= wanted.batches else 1


def _record(wanted: argparse.Namespace) -> Record:
    beside = None if wanted.beside is None else Beside(wanted.beside)
    nothing = Record(wanted.backend, wanted.device, (), Tally(), beside)
    if not wanted.resume:
        return nothing
    if wanted.json is None:
        raise InvalidInputError("--continue: expected --json FILE beside it, got none")
    record = Record.read(wanted.json)
    if (_backends(record), record.device) != (_backends(nothing), wanted.device):
        raise InvalidInputError(
            f"{wanted.json}: expected a record of {_backends(nothing)} on {wanted.device}, "
            f"got {_backends(record)} on {record.device}"
        )
    return record


def _backends(record: Record) -> tuple[str, ...]:
    return (record.backend,) if record.beside is None else (record.backend, record.beside.backend)


def _num_compared(record: Record) -> int:
    """Batches that all backends had."""
    return (record.tally if record.beside is None else record.beside.between).num_batches


def _campaign(wanted: argparse.Namespace, record: Record) -> Campaign:
    return Campaign(
        _backends(record),
        wanted.device,
        num_batches=wanted.batches,
        forms_per_policy=wanted.forms,
        num_workers=wanted.workers,
        deadline=time.time() + wanted.seconds,
        vocab_sizes=(wanted.vocab_sizes[0], wanted.vocab_sizes[1]),
        chunk=wanted.chunk,
        earlier=frozenset(record.chunks),
        num_earlier=_num_compared(record),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kit.equivalence")
    parser.add_argument("--backend", required=True)
    parser.add_argument("--beside", metavar="BACKEND", help="a second one on the same batches")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", type=int, default=10_000, help="default 10000")
    parser.add_argument("--forms", type=int, default=3, help="of each policy (default 3)")
    parser.add_argument("--chunk", type=int, default=CHUNK, help="batches of a form at a time")
    parser.add_argument(
        "--vocab-sizes",
        type=int,
        nargs=2,
        default=ALL_SIZES,
        metavar=("FROM", "TO"),
        help="only these, for slow simulators",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop early after so many")
    parser.add_argument("--compile", action="store_true", help="only compile, for a later run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    parser.add_argument(
        "--continue", action="store_true", dest="resume", help="add chunks that FILE lacks"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
