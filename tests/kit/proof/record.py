"""What the proof found, as plain values in one JSON file.

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
from attrs import asdict

from acceptor.backends.conformance.loading import load_backend
from kit.proof import samples
from kit.proof.cases import LOSSY, PAIRS
from kit.proof.checks import EDGES
from kit.proof.exact import law_error
from kit.proof.frequencies import compare
from kit.proof.large import near_uniform_draws
from kit.proof.mutants import MUTANTS
from kit.proof.pace import UNHURRIED, Pace
from kit.proof.reported import loss_of
from kit.proof.runs import step_of

Row = dict[str, Any]
Record = dict[str, Any]

MUTANT_RUNS = 2_000
"""Decode runs by which a mutant is shown to a sample, too."""


def machine(device: torch.device) -> dict[str, str]:
    """Where and when."""
    name = platform.machine()
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    return {
        "device": f"{device.type}, {name}",
        "torch": torch.__version__,
        "date": date.today().isoformat(),
    }


def exact_rows() -> Iterator[Row]:
    """Every policy with every drafter, enumerated."""
    for pair in PAIRS:
        yield {
            "policy": pair.policy.name,
            "drafter": pair.drafter,
            "lossless": pair.policy.lossless,
            "tokens": pair.num_tokens,
            **asdict(law_error(pair.setup, pair.num_tokens)),
        }


def loss_rows() -> Iterator[Row]:
    """What lossy policies did, and what they said."""
    for pair in LOSSY:
        yield {"policy": pair.policy.name, "drafter": pair.drafter, **asdict(loss_of(pair.setup))}


def sample_rows(
    backend: str, device: torch.device, size: samples.Size, pace: Pace = UNHURRIED
) -> Iterator[Row]:
    """Every policy, sampled; with the frequencies of sequences for the plain chain."""
    for policy, chain, compared in samples.sampled_runs(backend, device, size, pace):
        row = {
            "policy": policy.name,
            "chain": chain,
            "lossless": policy.lossless,
            "tests": {view: asdict(test) for view, test in compared.tests.items()},
            "p_values": compared.p_values,
        }
        if chain == "draft model":
            row["observed"] = compared.observed.joint.tolist()
            row["expected"] = compared.expected.joint.tolist()
        yield row


def large_rows(
    backend: str, device: torch.device, size: samples.Size, pace: Pace = UNHURRIED
) -> Iterator[Row]:
    """151,936 nearly equal tokens."""
    for way, bins, test in near_uniform_draws(backend, device, size, pace):
        yield {"way": way, "bins": bins, **asdict(test)}


def edge_rows(backend: str, device: torch.device) -> Iterator[Row]:
    """What chance almost never asks."""
    for name, count in EDGES.items():
        yield {"edge": name, "wrong": count(load_backend(backend), device)}


def mutant_rows() -> Iterator[Row]:
    """Every planted bug: its check, what it measured, and whether a sample shows it, too."""
    for mutant in MUTANTS:
        row = {"mutant": mutant.name, "check": mutant.check, **asdict(mutant.evidence())}
        row["p_value"] = None if mutant.policy is None else _sampled(mutant)
        yield row


def _sampled(mutant: Any) -> float:
    step = step_of(load_backend("reference"))
    with mutant.planted():
        compared = compare(samples.PLAIN, mutant.policy, step, MUTANT_RUNS, torch.device("cpu"))
    return min(test.p_value for test in compared.tests.values())


def length_rows(num_tokens: int) -> Iterator[Row]:
    """Block beside probabilistic on the bundled pair."""
    # It needs the application and its libraries; samples on a GPU do without.
    from kit.proof import lengths  # noqa: PLC0415

    for temperature in (1.0, 0.7):
        for num_spec_tokens in (2, 4, 8):
            yield asdict(lengths.bundled_lengths(num_spec_tokens, temperature, num_tokens))


def is_whole(backend: str, device: torch.device) -> bool:
    """Whether a record holds enumerations and planted bugs, too."""
    return backend == "reference" and device.type == "cpu"


def known(path: Path, backend: str, device: torch.device) -> Record:
    """The record of a backend on a kind of device, empty if there is none."""
    content = read(path)
    elsewhere = content.pop("elsewhere", [])
    if is_whole(backend, device):
        return content
    return next((one for one in elsewhere if _is_of(one, backend, device)), {})


def keep(path: Path, record: Record, device: torch.device) -> None:
    """Put a record in the place of an earlier one of the same backend and kind of device."""
    content, backend = read(path), record["backend"]
    elsewhere = content.pop("elsewhere", [])
    if is_whole(backend, device):
        content = record
    else:
        others = [one for one in elsewhere if not _is_of(one, backend, device)]
        elsewhere = sorted([*others, record], key=lambda one: str(one["backend"]))
    write(path, content | {"elsewhere": elsewhere})


def _is_of(record: Record, backend: str, device: torch.device) -> bool:
    kind = str(record["machine"]["device"]).partition(",")[0]
    return (record["backend"], kind) == (backend, device.type)


def write(path: Path, record: Record) -> None:
    """As JSON with one line per row, so that changes can be read."""
    parts = []
    for key, value in record.items():
        rows = value if isinstance(value, list) else [value]
        lines = ",\n  ".join(json.dumps(_rounded(row)) for row in rows)
        parts.append(
            f'"{key}": [\n  {lines}\n ]' if isinstance(value, list) else f'"{key}": {lines}'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n " + ",\n ".join(parts) + "\n}\n", encoding="utf-8")


def read(path: Path) -> Record:
    """What `write` wrote, empty if there is no file."""
    record: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def name_of(row: Row) -> str:
    """What a row is about, and how much was counted."""
    words = [value for value in row.values() if isinstance(value, str)]
    tests = row.get("tests", {"": row}).values()
    return ", ".join([*words, *(f"{test['num_draws']:,}" for test in tests if "num_draws" in test)])


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return value
