"""What `python -m acceptor.app.engine.speed` recorded, as the documentation shows it.

This module refuses to measure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

ATTENTION_WAYS = ("us", "together_us", "flex_us")


def as_markdown(record: Mapping[str, Any]) -> str:
    """Tables of a record, with its machine and date."""
    parts = (
        _steps(record),
        _ratios(record),
        _products(record),
        _attention(record),
        _missing(record),
    )
    tables = ["\n".join(lines) for lines in map(list, parts) if lines]
    return "\n\n".join([*tables, _source(record)]) + "\n"


def _steps(record: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "| concurrency | K | tokens/s | steps | tokens per step | step, ms | draft | target "
        "| verification | host | share of bandwidth |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for row in record.get("rows", []):
        parts = row["parts_ms"]
        yield (
            f"| {row['concurrency']} | {row['num_spec_tokens']} | {row['tokens_per_second']:.0f} | "
            f"{row['num_steps']} | {row['tokens_per_step']:.2f} | {row['step_ms']:.2f} | "
            f"{parts['draft']:.2f} | {parts['target']:.2f} | {parts['verification']:.3f} "
            f"({parts['verification'] / row['step_ms']:.1%}) | {_host(parts)} | "
            f"{_share(record, row)} |"
        )


def _share(record: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    return f"{share_of_bandwidth(record, row):.0%}" if "bandwidth" in record else "not measured"


def _host(parts: Mapping[str, float]) -> str:
    return f"{parts['host']:.2f}" if "host" in parts else "not measured"


def share_of_bandwidth(record: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Of a step's time, how much reading the weights once per forward takes at full bandwidth."""
    sizes = record["weight_bytes"]
    num_bytes = sizes["target"] + row["num_spec_tokens"] * sizes["draft"]
    seconds: float = num_bytes / best_bandwidth(record)
    return 1000 * seconds / float(row["step_ms"])


def best_bandwidth(record: Mapping[str, Any]) -> float:
    """Bytes per second: a slow moment of memory must not make a share look large."""
    return max(float(record["bandwidth"]), float(record.get("bandwidth_of_kernels", 0.0)))


def _ratios(record: Mapping[str, Any]) -> Iterator[str]:
    alone = {
        bool(row["num_spec_tokens"]): row["tokens_per_second"]
        for row in record.get("rows", [])
        if row["concurrency"] == 1
    }
    others = {f"Hugging Face, {how}": v for how, v in record.get("hugging_face", {}).items()}
    if False in alone:
        others = {"this engine, plain": alone[False]} | others
    if True not in alone or not others:
        return
    yield "| one request | tokens/s | speculative against it |"
    yield "|---|---|---|"
    for name, other in others.items():
        yield f"| {name} | {other:.0f} | {alone[True] / other:.2f} × |"


def _products(record: Mapping[str, Any]) -> Iterator[str]:
    rows = record.get("products", [])
    if not rows or "bandwidth" not in record:
        return
    sizes = sorted({row["tokens"] for row in rows})
    heads = "".join(f" {size} token{'s' * (size > 1)} |" for size in sizes)
    yield f"| product, µs (share of bandwidth) |{heads}"
    yield "|---|" + "---|" * len(sizes)
    named: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: int(row["tokens"])):
        share = row["bytes"] / best_bandwidth(record) / (row["us"] * 1e-6)
        cells = named.setdefault(f"{row['model']}, {row['product']}", [])
        cells.append(f"{row['us']:.1f} ({share:.0%})")
    for name, cells in named.items():
        yield f"| {name} | {' | '.join(cells)} |"


def _attention(record: Mapping[str, Any]) -> Iterator[str]:
    rows = record.get("attention", [])
    if not rows:
        return
    yield (
        "| attention of | requests | queries of each | positions | µs, one by one | together "
        "| flex_attention |"
    )
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        times = (f"{row[way]:.1f}" if way in row else "–" for way in ATTENTION_WAYS)
        yield (
            f"| {row['model']} | {row['requests']} | {row['queries']} | {row['positions']} | "
            f"{' | '.join(times)} |"
        )


def _missing(record: Mapping[str, Any]) -> Iterator[str]:
    for name, why in record.get("missing", {}).items():
        yield f"- Not measured: {name} ({why.splitlines()[0]})."


def _source(record: Mapping[str, Any]) -> str:
    memory = ""
    if "bandwidth" in record:
        own, best = record["bandwidth"], best_bandwidth(record)
        memory = f"; memory delivers {best / 1e12:.2f} TB/s at best, copied or read"
        if best > own:
            memory += f", as the benchmark of kernels saw; {own / 1e12:.2f} in this run"
    return (
        f"{record['device']}, torch {record['torch']}, backend {record['backend']}, "
        f"{record['date']}{memory}."
    )
