"""`python -m kit.equivalence`: a backend against the contract's oracle over many random batches.

Writes the conformance kit's record. It refuses to end with 0 when something is unexplained.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

from acceptor.backends.conformance.record import Record
from acceptor.backends.conformance.table import table
from acceptor.backends.conformance.tally import Tally
from kit.equivalence.campaign import Campaign


def main() -> int:
    """Run, print, write; 0 if the backend conforms."""
    parser = argparse.ArgumentParser(prog="python -m kit.equivalence")
    parser.add_argument("--backend", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", type=int, default=10_000, help="default 10000")
    parser.add_argument("--forms", type=int, default=3, help="of each policy (default 3)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop early after so many")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    wanted = parser.parse_args()
    deadline = time.time() + wanted.seconds
    campaign = Campaign(
        wanted.backend, wanted.device, wanted.batches, wanted.forms, wanted.workers, deadline
    )
    start = time.monotonic()
    record = Record(wanted.backend, wanted.device, (), Tally())
    for number, found in campaign.run():
        record = record.including(number, found)
        if wanted.json is not None:
            record.write(wanted.json)
    sys.stdout.write(table(record.tally))
    sys.stdout.write(f"{time.monotonic() - start:.0f} s\n")
    enough = record.tally.num_batches >= wanted.batches
    return 0 if record.tally.is_conformant and enough else 1


if __name__ == "__main__":
    sys.exit(main())
