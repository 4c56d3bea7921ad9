"""The command: `python -m acceptor.backends.conformance --backend NAME`; see `--help`."""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch

from .loading import load_backend
from .run import CHUNK, run_chunk
from .tally import Tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print what was found."""
    wanted = _parser().parse_args(arguments)
    numbers = range(wanted.first_chunk, wanted.first_chunk + -(-wanted.batches // CHUNK))
    work = partial(_run, wanted.backend, wanted.device, wanted.max_vocab_size)
    if wanted.workers == 1:
        tally = sum(map(work, numbers), Tally())
    else:
        with ProcessPoolExecutor(wanted.workers) as pool:
            tally = sum(pool.map(work, numbers), Tally())
    sys.stdout.write(_table(tally))
    return 1 if tally.failures else 0


def _run(backend: str, device: str, largest_vocabulary: int, chunk: int) -> Tally:
    torch.set_num_threads(1)
    return run_chunk(
        load_backend(backend), torch.device(device), chunk, largest_vocabulary=largest_vocabulary
    )


def _table(tally: Tally) -> str:
    lines = [
        f"batches      {tally.num_batches:>12,}",
        f"unsupported  {tally.num_unsupported:>12,}",
        f"requests     {tally.num_requests:>12,}",
        f"decisions    {tally.num_decisions:>12,}",
        f"differences  {tally.num_differences:>12,}",
        *[f"  near-tie, {kind}: {count:,}" for kind, count in sorted(tally.excused.items())],
        f"unexplained  {len(tally.failures):>12,}",
    ]
    for case, difference in tally.failures[:10]:
        lines += [f"{difference}", f"  {case.to_json()}"]
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m acceptor.backends.conformance",
        description="Hold a backend to the contract.",
    )
    parser.add_argument("--backend", required=True, help="registered name or package.module:Class")
    parser.add_argument("--batches", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--device", default="cpu", help="where (default cpu)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--first-chunk", type=int, default=0, help="where to go on")
    parser.add_argument("--max-vocab-size", type=int, default=10**9, help="for slow simulators")
    return parser


if __name__ == "__main__":
    sys.exit(main())
