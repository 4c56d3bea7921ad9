"""Draws a record: the loss curves as a figure, the measures as Markdown tables.

`python -m acceptor.app.training.report RECORD --figure FILE` prints the tables of the docs. It
computes nothing that the record does not hold.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def read_record(path: Path) -> dict[str, Any]:
    """The record that a training run wrote."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def measures_table(record: dict[str, Any]) -> str:
    """Parameters and held-out losses of both models."""
    lines = [
        "| model | parameters | held-out loss, nats per token | held-out loss, bits per byte |",
        "|---|---|---|---|",
    ]
    for name in ("target", "draft"):
        model = record["models"][name]
        lines.append(
            f"| {name} | {model['parameters']:,} | {model['held_out_nats_per_token']:.3f} "
            f"| {model['held_out_bits_per_byte']:.3f} |"
        )
    return "\n".join(lines)


def agreement_table(record: dict[str, Any]) -> str:
    """How much of the target's law the draft covers, by temperature."""
    lines = [
        "| temperature | mean Σ min(p, q) | mean Σ p·q | same most probable token |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['temperature']} | {row['overlap']:.3f} | {row['coincidence']:.3f} "
        f"| {row['top_1']:.3f} |"
        for row in record["agreement"]
    ]
    return "\n".join(lines)


def draw_losses(record: dict[str, Any], path: Path) -> None:
    """Write both loss curves and the draft's overlap by step; the suffix chooses the format."""
    # A fixed salt and no date: the same record gives the same file.
    with mpl.rc_context({"svg.hashsalt": "acceptor", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 3), layout="constrained")
        target, draft = figure.subplots(1, 2)
        _draw_target(target, record["curves"]["target"])
        _draw_draft(draft, record["curves"]["draft"])
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_target(axes: Axes, points: list[dict[str, Any]]) -> None:
    steps = [point["step"] for point in points]
    losses = [point["held_out_loss"] for point in points]
    axes.plot(steps, losses, label="held out")
    axes.plot(steps, [point["training_loss"] for point in points], "--", label="training")
    axes.plot(steps[losses.index(min(losses))], min(losses), "ko", label="kept")
    axes.set(title="target", xlabel="step", ylabel="nats per token")
    axes.legend()


def _draw_draft(axes: Axes, points: list[dict[str, Any]]) -> None:
    # No training loss: the draft's goes over from a divergence to a distance on the way.
    steps = [point["step"] for point in points]
    losses = axes.plot(steps, [p["held_out_loss"] for p in points], label="held out")
    right = axes.twinx()
    overlaps = right.plot(steps, [p["overlap"] for p in points], "C2:", label="Σ min(p, q)")
    axes.set(title="draft", xlabel="step", ylabel="nats per token")
    right.set(ylabel="mean Σ min(p, q)")
    axes.legend(handles=[*losses, *overlaps], loc="center right")


@click.command()
@click.argument("record", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--figure", type=click.Path(dir_okay=False, path_type=Path), help="Draw it here.")
def main(record: Path, figure: Path | None) -> None:
    """Print the tables of RECORD in Markdown."""
    content = read_record(record)
    click.echo(f"{measures_table(content)}\n\n{agreement_table(content)}")
    if figure:
        draw_losses(content, figure)


if __name__ == "__main__":
    main()
