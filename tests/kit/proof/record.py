"""What the proof found, as plain values in one JSON file, and what it claims by them.

The reference's record on a CPU is the file's content. Records of other backends and devices, which
hold samples only, are in its list `elsewhere`.
"""

import json
import platform
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, frozen

from acceptor.backends.conformance.calls import Backend
from kit.chi_square import ALPHA
from kit.proof import large
from kit.proof.cases import LOSSY, ONE_HOT, PAIRS, POLICIES
from kit.proof.checks import CAUGHT, EDGES, evidence_of
from kit.proof.exact import EXACT, law_error
from kit.proof.reported import loss_of
from kit.proof.runs import CHAINS, PLAIN, compare, grouped_step, step_of

Row = dict[str, Any]
Record = dict[str, Any]

CPU = torch.device("cpu")


@frozen
class Size:
    """How much is drawn.

    Attributes:
        runs: decode runs of every policy with the plain chain.
        runs_elsewhere: of lossless ones with the other chains.
        draws: draws from the large vocabulary, on each way.
        runs_at_once, draws_at_once: how many of either fit into memory together.
    """

    runs: int
    runs_elsewhere: int
    draws: int
    runs_at_once: int = 1 << 16
    draws_at_once: int = 256


ON_A_CPU = Size(runs=200_000, runs_elsewhere=1_500, draws=50_000)
ON_A_GPU = Size(
    runs=10_000_000,
    runs_elsewhere=500_000,
    draws=10_000_000,
    runs_at_once=1 << 18,
    draws_at_once=1 << 15,
)


@frozen
class Sampled:
    """Where and how much is sampled.

    Attributes:
        name: the backend's.
        backend: draws and verifies; the reference decides what is alike together where it can.
        device: where.
        size: how much.
        deadline: by the monotonic clock; what is left then ends with its first part.
    """

    name: str
    backend: Backend
    device: torch.device
    size: Size
    deadline: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the record holds enumerations and planted bugs, too."""
        return self.name == "reference" and self.device == CPU

    def rows(self) -> Iterator[Row]:
        """Every policy that the backend has; lossless ones with every chain."""
        for name, chain in CHAINS.items():
            grouped = self.is_whole and chain is PLAIN
            runs = self.size.runs if chain is PLAIN else self.size.runs_elsewhere
            for policy in POLICIES:
                if chain is not PLAIN and not policy.lossless:
                    continue
                step = grouped_step if grouped else step_of(self.backend)
                limits = (runs, self.device, self.size.runs_at_once, self.deadline)
                tests = compare(chain, policy, step, *limits)
                if tests is not None:
                    yield {
                        "policy": policy.name,
                        "chain": name,
                        "lossless": policy.lossless,
                        "tests": {view: asdict(test) for view, test in tests.items()},
                    }

    def large_rows(self) -> Iterator[Row]:
        """151,936 nearly equal tokens."""
        ways = large.grouped_ways if self.is_whole else large.ways_of(self.backend)
        limits = (self.size.draws, self.size.draws_at_once, self.deadline)
        for way, bins, test in large.near_uniform_draws(ways, self.device, *limits):
            yield {"way": way, "bins": bins, **asdict(test)}

    def edge_rows(self) -> Iterator[Row]:
        """What chance almost never asks."""
        for name, count in EDGES.items():
            yield {"edge": name, "wrong": count(self.backend, self.device)}


def exact_rows() -> Iterator[Row]:
    """Every policy with every drafter, enumerated."""
    for pair in PAIRS:
        error = law_error(pair.setup, pair.num_tokens)
        about = {"policy": pair.policy.name, "drafter": pair.drafter}
        yield about | {"lossless": pair.policy.lossless, **asdict(error)}


def loss_rows() -> Iterator[Row]:
    """What lossy policies did, and what they said."""
    for pair in LOSSY:
        yield {"policy": pair.policy.name, "drafter": pair.drafter, **asdict(loss_of(pair.setup))}


def mutant_rows() -> Iterator[Row]:
    """Every planted bug that changes a law: its check and what that measured."""
    for bug in CAUGHT:
        yield {"mutant": bug.name, "check": bug.check, **asdict(evidence_of(bug))}


def length_rows() -> Iterator[Row]:
    """Block beside probabilistic on the bundled pair."""
    # It needs the application and its libraries; samples on a GPU do without.
    from kit.proof import lengths  # noqa: PLC0415

    for temperature in (1.0, 0.7):
        for num_spec_tokens in (2, 4, 8):
            yield asdict(lengths.bundled_lengths(num_spec_tokens, temperature, num_tokens=256))


def about(sampled: Sampled) -> Row:
    """What was proven, where and when."""
    on_gpu = sampled.device.type == "cuda"
    name = torch.cuda.get_device_name(sampled.device) if on_gpu else platform.machine()
    device = f"{sampled.device.type}, {name}"
    machine = {"device": device, "torch": torch.__version__, "date": date.today().isoformat()}
    return {"backend": sampled.name, "machine": machine}


def known(path: Path, backend: str, device: torch.device) -> Record:
    """The record of a backend on a kind of device, empty if there is none."""
    content = read(path)
    everything = [content, *content.pop("elsewhere", [])]
    return next((one for one in everything if _is_of(one, backend, device)), {})


def keep(path: Path, record: Record, sampled: Sampled) -> None:
    """Put a record in the place of an earlier one of the same backend and kind of device."""
    content = read(path)
    elsewhere = content.pop("elsewhere", [])
    if sampled.is_whole:
        content = record
    else:
        others = [one for one in elsewhere if not _is_of(one, sampled.name, sampled.device)]
        elsewhere = sorted([*others, record], key=lambda one: str(one["backend"]))
    _write(path, content | {"elsewhere": elsewhere})


def _is_of(record: Record, backend: str, device: torch.device) -> bool:
    kind = str(record.get("machine", {}).get("device")).partition(",")[0]
    return (record.get("backend"), kind) == (backend, device.type)


def _write(path: Path, record: Record) -> None:
    """As JSON with one line per row, so that changes can be read."""
    lines = {
        key: "[\n  " + ",\n  ".join(json.dumps(_rounded(row)) for row in value) + "\n ]"
        if isinstance(value, list)
        else json.dumps(value)
        for key, value in record.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = ",\n ".join(f'"{key}": {line}' for key, line in lines.items())
    path.write_text("{\n " + text + "\n}\n", encoding="utf-8")


def read(path: Path) -> Record:
    """What was kept, empty if there is no file."""
    record: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


@frozen
class Claim:
    """One line of the summary: the worst of some values and the limit for it."""

    name: str
    cases: int
    worst: float
    limit: float
    is_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the worst value is within its limit."""
        return self.worst > self.limit if self.is_least else self.worst <= self.limit

    def __str__(self) -> str:
        """One line."""
        sign, verdict = ">" if self.is_least else "≤", "holds" if self.holds else "FAILS"
        return (
            f"{verdict}: {self.name}, {self.cases} cases: {self.worst:.2g} {sign} {self.limit:.2g}"
        )


def claims(record: Record) -> Iterator[Claim]:
    """Every claim that the record has something to say about."""
    errors = {True: [], False: []}  # type: dict[bool, list[float]]
    for row in record.get("exact", ()):
        errors[row["lossless"]].append(max(row["first"], row["joint"], row["conditional"]))
    gaps = [
        abs(row["enumerated"] - row["reported"])
        for row in record.get("losses", ())
        if row["policy"] != "fly" or row["drafter"] in ONE_HOT
    ]
    tests = {True: [], False: []}  # type: dict[bool, list[float]]
    for row in record.get("samples", ()):
        for view, test in row["tests"].items():
            if row["lossless"] or view == "joint":
                tests[row["lossless"]].append(min(test["p_chi_square"], test["p_g"]))
    large_tests = [min(row["p_chi_square"], row["p_g"]) for row in record.get("large", ())]
    excess = [row["value"] / (row["limit"] or 0.5) for row in record.get("mutants", ())]
    gains = [row["gain"] / row["gain_error"] for row in record.get("lengths", ())]
    wrong = [float(row["wrong"]) for row in record.get("edges", ())]
    found = (
        ("lossless laws are exact", errors[True], EXACT, False),
        ("lossy laws are not", errors[False], 1e-6, True),
        # The record has four digits.
        ("lossy policies report what they do", gaps, 1e-4, False),
        ("samples of lossless policies follow the target", tests[True], _share(tests[True]), True),
        ("samples of lossy ones do not", tests[False], ALPHA, False),
        ("151,936 nearly equal tokens", large_tests, _share(large_tests), True),
        ("edges: wrong requests", wrong, 0, False),
        ("planted bugs are caught: measure / limit", excess, 1, True),
        # The expectation is at least 0 for any pair; a mean over drafts is not quite that.
        ("block accepts more on the bundled pair, standard errors", gains, -4, True),
    )
    for name, values, limit, is_least in found:
        if values:
            worst = min(values) if is_least else max(values)
            yield Claim(name, len(values), worst, limit, is_least)


def _share(p_values: list[float]) -> float:
    return ALPHA / max(len(p_values), 1)
