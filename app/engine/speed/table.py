"""What `python -m acceptor.app.engine.speed` recorded, as the documentation shows it.

This module refuses to measure.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def as_markdown(record: Mapping[str, Any]) -> str:
    """Tables of a record, with its machine and date."""
    return "\n".join([*_steps(record), "", *_ratios(record), "", _source(record)]) + "\n"


def _steps(record: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "| concurrency | K | tokens/s | tokens per step | step, ms | draft | target | verification "
        "| host | share of bandwidth |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in record["rows"]:
        parts = row["parts_ms"]
        yield (
            f"| {row['concurrency']} | {row['num_spec_tokens']} | {row['tokens_per_second']:.0f} | "
            f"{row['tokens_per_step']:.2f} | {row['step_ms']:.2f} | {parts['draft']:.2f} | "
            f"{parts['target']:.2f} | {parts['verification']:.3f} "
            f"({parts['verification'] / row['step_ms']:.1%}) | {parts['host']:.2f} | "
            f"{share_of_bandwidth(record, row):.0%} |"
        )


def share_of_bandwidth(record: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Of a step's time, how much reading the weights once per forward takes at full bandwidth."""
    sizes = record["weight_bytes"]
    num_bytes = sizes["target"] + row["num_spec_tokens"] * sizes["draft"]
    seconds: float = num_bytes / record["bandwidth"]
    return 1000 * seconds / float(row["step_ms"])


def _ratios(record: Mapping[str, Any]) -> Iterator[str]:
    speculative, plain = (
        next(r for r in record["rows"] if r["concurrency"] == 1 and bool(r["num_spec_tokens"]) == k)
        for k in (True, False)
    )
    speed = speculative["tokens_per_second"]
    yield "| one request | tokens/s | this engine, speculative, against it |"
    yield "|---|---|---|"
    others = {"this engine, plain": plain["tokens_per_second"]}
    others |= {f"Hugging Face, {how}": v for how, v in record.get("hugging_face", {}).items()}
    for name, other in others.items():
        yield f"| {name} | {other:.0f} | {speed / other:.2f} × |"


def _source(record: Mapping[str, Any]) -> str:
    return (
        f"{record['device']}, torch {record['torch']}, backend {record['backend']}, "
        f"{record['date']}; memory delivers {record['bandwidth'] / 1e12:.2f} TB/s at best, copied "
        "or read."
    )
