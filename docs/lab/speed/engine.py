"""Measures how fast the engine decodes on a GPU, beside other ways to decode.

Run it from the repository's root, on a GPU with 60 GB:

    PYTHONPATH=docs:tests python -m lab.speed.engine --out docs/data

A Llama-3-8B-shaped target and a 1B-shaped draft get random weights in bfloat16; K = 3, and drafts
are accepted at a synthetic rate of 0.6. One request and 16 are decoded, with drafts and without.
Hugging Face generates with models of the same shapes. The script writes engine.json and engine.md
and takes less than 200 seconds on an H200. `--rehearse` runs everything with tiny models on a CPU.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from attrs import field, frozen

from acceptor.app.bench.files import describe
from acceptor.app.bench.kernels.measure import KernelBench, Stopwatch
from acceptor.app.bench.kernels.workload import Workload
from acceptor.app.bench.pair import Pair, random_pair
from acceptor.app.bench.run import Bench
from acceptor.app.bench.sweep import Load, Sweep
from acceptor.app.bench.table import Table
from acceptor.app.config import DrafterConfig, ModelsConfig
from acceptor.app.policies import SyntheticSettings
from acceptor.app.tuning.measure import Measurement, Plan
from acceptor.core import Recipe, SamplingParams
from kit.shapes import DRAFT, TARGET, TINY
from lab.speed.hugging_face import hugging_face

NUM_SPEC_TOKENS = 3
ACCEPTANCE_RATE = 0.6
Record = dict[str, Any]


@frozen(kw_only=True)
class Sizes:
    """The sizes of a measurement.

    Attributes:
        target, draft: shapes of the models, in config.json's format.
        prompt_len, output_len: tokens of each request.
        num_steps: steps per measurement.
        several: how many requests at once, besides one.
    """

    target: dict[str, Any] = field(factory=lambda: TARGET)
    draft: dict[str, Any] = field(factory=lambda: DRAFT)
    prompt_len: int = 128
    output_len: int = 256
    num_steps: int = 1000
    several: int = 16


REHEARSAL = Sizes(
    target=TARGET | TINY,
    draft=DRAFT | TINY,
    prompt_len=8,
    output_len=12,
    num_steps=20,
    several=3,
)


@click.command()
@click.option("--backend", default="triton", show_default=True)
@click.option("--forward", default="auto", show_default=True, help="auto, triton or torch.")
@click.option("--rehearse", is_flag=True, help="Tiny models on the CPU.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="A folder."
)
def main(backend: str, forward: str, rehearse: bool, out: Path) -> None:
    """Measure, and write engine.json and engine.md after every part."""
    out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cpu" if rehearse else "cuda")
    sizes = REHEARSAL if rehearse else Sizes()
    pair = load_pair(sizes, device, forward)
    verification = KernelBench(
        (backend,), Stopwatch(device), count=20, num_sets=2, num_checked=0, eager=False
    )
    record: Record = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(device),
        "backend": backend,
        "forward": pair.target.forward_name,
        "acceptance_rate": ACCEPTANCE_RATE,
        "bandwidth": verification.bandwidth,
        "weight_bytes": {"target": weight_bytes(sizes.target), "draft": weight_bytes(sizes.draft)},
        "rows": [],
    }
    for num_reqs in (1, sizes.several):
        for num_spec_tokens in (NUM_SPEC_TOKENS, 0):
            row = decode(pair, num_reqs, num_spec_tokens, backend, sizes)
            shape = (num_reqs, num_spec_tokens, sizes.target["vocab_size"])
            row["verification_ms"] = verification_ms(verification, *shape)
            record["rows"].append(row)
            _write(record, out)
    shapes = (sizes.target, sizes.draft)
    record["hugging_face"] = hugging_face(shapes, sizes.prompt_len, NUM_SPEC_TOKENS, device)
    _write(record, out)
    click.echo(as_markdown(record))


def load_pair(sizes: Sizes, device: torch.device, forward: str) -> Pair:
    """Target and draft with random weights."""
    with TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.json" for name in ("target", "draft")}
        for name, file in files.items():
            file.write_text(json.dumps(getattr(sizes, name)), encoding="utf-8")
        models = ModelsConfig(device=str(device), dtype="bfloat16", forward=forward)
        return random_pair(files["target"], files["draft"], models, DrafterConfig(name="model"))


def weight_bytes(shape: Mapping[str, Any]) -> int:
    """The bytes that one forward reads: all weights, but only a few rows of the embedding."""
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    keys = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    layer = hidden * (2 * hidden + 2 * keys + 3 * inner)
    parameters: int = shape["num_hidden_layers"] * layer + shape["vocab_size"] * hidden
    return 2 * parameters


def decode(
    pair: Pair, num_reqs: int, num_spec_tokens: int, backend: str, sizes: Sizes
) -> dict[str, Any]:
    """Time steps of this many requests and draft tokens, as `acceptor tune` does."""
    load = Load(
        num_requests=num_reqs,
        max_concurrency=num_reqs,
        warm_up=0,
        input_len=sizes.prompt_len,
        output_len=sizes.output_len,
    )
    sweep = Sweep(
        policies={"synthetic": SyntheticSettings(acceptance_rate=ACCEPTANCE_RATE)},
        num_spec_tokens=(num_spec_tokens,),
        temperatures=(1.0,),
        backends=(backend,),
    )
    sampling, prompts = SamplingParams(), pair.reader.prompts(load)
    bench = Bench(pair=pair, sweep=sweep, load=load, sampling=sampling, prompts=prompts)
    plan = Plan(lengths=(num_spec_tokens,), concurrencies=(num_reqs,), num_steps=sizes.num_steps)
    (setting,) = sweep
    measured = Measurement(bench.engine(setting), plan).take(bench.arrivals(setting))
    key = num_reqs, num_spec_tokens
    seconds = [times.total for seen, times in measured.samples if seen == key]
    accepted = [accepted for drafted, accepted in measured.drafts if drafted == num_spec_tokens]
    tokens_per_step = 1 + fmean(accepted)
    return {
        "num_reqs": num_reqs,
        "num_spec_tokens": num_spec_tokens,
        "num_steps": len(seconds),
        "step_ms": 1000 * median(seconds),
        "tokens_per_second": num_reqs * tokens_per_step / median(seconds),
        "tokens_per_step": tokens_per_step,
    }


def verification_ms(
    bench: KernelBench, num_reqs: int, num_spec_tokens: int, vocab_size: int
) -> float:
    """The milliseconds of one call of the same kind, with a cold cache."""
    workload = Workload(
        num_reqs=num_reqs,
        num_spec_tokens=num_spec_tokens,
        vocab_size=vocab_size,
        policy="synthetic",
        recipe=Recipe(temperature=1.0),
    )
    (line,) = bench.run([workload])
    microseconds = line.cells[0].time
    if microseconds is None:
        raise click.ClickException(line.cells[0].problem)
    return microseconds / 1000


def share_of_limit(record: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """The share of a step's time that reading the weights once per forward takes."""
    sizes = record["weight_bytes"]
    num_bytes = sizes["target"] + row["num_spec_tokens"] * sizes["draft"]
    return 1000 * float(num_bytes) / float(record["bandwidth"]) / float(row["step_ms"])


def as_markdown(record: Mapping[str, Any]) -> str:
    """A table of a record's rows, and where they were measured."""
    head = (
        "requests",
        "K",
        "step, ms",
        "of the weight-read limit",
        "tokens/s",
        "tokens a request and step",
        "verification",
        "over plain",
        "over Hugging Face, assisted",
    )
    rows = [_cells(record, row) for row in record["rows"]]
    return f"{Table(head=head, rows=rows).as_markdown()}\n{_source(record)}\n"


def _cells(record: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, ...]:
    share = "–" if record["bandwidth"] is None else f"{share_of_limit(record, row):.0%}"
    verification = row["verification_ms"]
    plain = {
        other["num_reqs"]: other["tokens_per_second"]
        for other in record["rows"]
        if not other["num_spec_tokens"]
    }
    # Assisted generation takes one request at a time.
    assisted = record.get("hugging_face", {}).get("assisted") if row["num_reqs"] == 1 else None
    return (
        str(row["num_reqs"]),
        str(row["num_spec_tokens"]),
        f"{row['step_ms']:.2f}",
        share,
        f"{row['tokens_per_second']:.0f}",
        f"{row['tokens_per_step']:.2f}",
        f"{verification:.3f} ms ({verification / row['step_ms']:.1%})",
        _ratio(row, plain.get(row["num_reqs"]) if row["num_spec_tokens"] else None),
        _ratio(row, assisted),
    )


def _ratio(row: Mapping[str, Any], other: float | None) -> str:
    return "–" if other is None else f"{row['tokens_per_second'] / other:.2f}"


def _source(record: Mapping[str, Any]) -> str:
    machine, bandwidth = record["machine"], record["bandwidth"]
    parts = [machine["device"], f"torch {machine['torch']}", f"backend {record['backend']}"]
    parts += [f"forward {record['forward']}"] if "forward" in record else []
    parts += [record["date"]]
    parts += [] if bandwidth is None else [f"memory is read at {bandwidth / 1e12:.2f} TB/s"]
    others = record.get("hugging_face", {})
    parts += [f"Hugging Face, {name}: {speed:.0f} tokens/s" for name, speed in others.items()]
    return "; ".join(parts) + "."


def _write(record: Record, out: Path) -> None:
    (out / "engine.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (out / "engine.md").write_text(as_markdown(record), encoding="utf-8")


if __name__ == "__main__":
    main()
