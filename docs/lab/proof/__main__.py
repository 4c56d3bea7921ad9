"""The command behind `make prove`; see `--help`. It exits with 1 if a claim fails.

Enumeration and planted bugs use the reference on a CPU; other backends or devices only repeat the
sampling. A stopped run keeps its results so far.
"""

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
from attrs import asdict, frozen

from acceptor.backends.conformance import load_backend
from acceptor.core import Sampler
from kit.bugs_in_batches import OF_LAWS
from lab.proof import record
from lab.proof.cases import LOSSY, PAIRS, POLICIES
from lab.proof.exact import EXACT, error_of_pair, error_under
from lab.proof.grouped import grouped_step
from lab.proof.large import near_uniform_draws
from lab.proof.record import Row
from lab.proof.reported import loss_of
from lab.proof.runs import CHAINS, PLAIN, compare, step_of
from lab.proof.schemas import LOSSLESS, schema_row

DATA = Path(__file__).parents[2] / "data"
SCHEMA_OUTPUTS = 1_000
ON_A_CPU = {"runs": 200_000, "runs_elsewhere": 1_500, "draws": 1_000}
ON_A_GPU = {"runs": 10_000_000, "runs_elsewhere": 500_000, "draws": 10_000_000}


@frozen
class Proof:
    """Where and how much is proven.

    Attributes:
        name: the backend's name.
        backend: draws and verifies; the reference decides equal requests together where possible.
        device: the device that it runs on.
        runs: decode runs of every policy with the plain chain.
        runs_elsewhere: decode runs of lossless policies with the other chains.
        draws: draws from the large vocabulary, for each way.
        deadline: by the monotonic clock; after it, each row ends with its first part.
    """

    name: str
    backend: Sampler
    device: torch.device
    runs: int
    runs_elsewhere: int
    draws: int
    deadline: float | None = None

    @property
    def parts(self) -> dict[str, Callable[[], Iterator[Row]]]:
        """The parts of the proof, by name."""
        parts = {"large": self._large, "samples": self._samples}
        if self._is_reference:
            parts |= {"exact": _exact, "losses": _losses, "mutants": _mutants}
            parts["schemas"] = _schemas
        return parts

    @property
    def _is_reference(self) -> bool:
        return self.name == "reference" and self.device.type == "cpu"

    def about(self, part: str) -> Row:
        """The fields that all its rows share."""
        on_gpu = self.device.type == "cuda"
        machine = torch.cuda.get_device_name(self.device) if on_gpu else platform.machine()
        where = {"backend": self.name, "device": f"{self.device.type}, {machine}"}
        return {"part": part, **where, "date": datetime.now(UTC).date().isoformat()}

    def _samples(self) -> Iterator[Row]:
        chunk = 1 << 16 if self.device.type == "cpu" else 1 << 18
        for name, chain in CHAINS.items():
            is_plain = chain is PLAIN
            step = grouped_step if self._is_reference and is_plain else step_of(self.backend)
            runs = self.runs if is_plain else self.runs_elsewhere
            for policy in POLICIES:
                if not is_plain and not policy.lossless:
                    continue
                tests = compare(chain, policy, step, runs, self.device, chunk, self.deadline)
                if tests is not None:
                    about = {"policy": policy.name, "chain": name, "lossless": policy.lossless}
                    yield about | {"tests": {view: asdict(test) for view, test in tests.items()}}

    def _large(self) -> Iterator[Row]:
        chunk = 64 if self.device.type == "cpu" else 1 << 15
        limits = (self.device, self.draws, chunk, self.deadline)
        for way, bins, test in near_uniform_draws(self.backend, *limits):
            yield {"way": way, "bins": bins, **asdict(test)}


def _exact() -> Iterator[Row]:
    for pair in PAIRS:
        about = {"policy": pair.policy.name, "drafter": pair.drafter}
        yield about | {"lossless": pair.policy.lossless, **asdict(error_of_pair(pair))}


def _losses() -> Iterator[Row]:
    for pair in LOSSY:
        yield {"policy": pair.policy.name, "drafter": pair.drafter, **asdict(loss_of(pair.setup))}


def _mutants() -> Iterator[Row]:
    for bug in OF_LAWS:
        error = error_under(bug)
        limits = {"value": error.worst, "limit": EXACT}
        yield {"mutant": bug.name, "check": bug.check, **limits, "parts": asdict(error)}


def _schemas() -> Iterator[Row]:
    return (schema_row(policy, SCHEMA_OUTPUTS) for policy in LOSSLESS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove, print, write; 0 if all claims hold."""
    wanted = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    device, all_hold = torch.device(wanted.device), True
    deadline = None if wanted.seconds is None else time.monotonic() + wanted.seconds
    size = ON_A_CPU if device.type == "cpu" else ON_A_GPU
    if wanted.runs:
        fewer = min(wanted.runs, size["runs_elsewhere"])
        size = size | {"runs": wanted.runs, "runs_elsewhere": fewer}
    size = size | {"draws": wanted.draws or size["draws"]}
    for name in () if wanted.pages else wanted.backend or ["reference"]:
        proof = Proof(name, load_backend(name), device, **size, deadline=deadline)
        for part in wanted.part or proof.parts:
            found: list[Row] = []
            for row in proof.parts[part]():
                found.append(proof.about(part) | row)
                record.keep(wanted.json, found)
            wrong = sum(not record.holds(row) for row in found)
            told = f"FAILS: {wrong} of" if wrong else "holds:"
            sys.stdout.write(f"{told} {part}, {len(found)} rows of {name} on {device}\n")
            all_hold &= not wrong
    rows = record.read(wanted.json)
    if any(row["part"] == "exact" for row in rows):
        wanted.json.with_suffix(".md").write_text(record.markdown(rows), encoding="utf-8")
    return 0 if all_hold else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.proof", description=__doc__)
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
