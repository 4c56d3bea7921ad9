"""The figures of the proof: expected against observed, p-values, and planted bugs."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from kit.proof.exact import EXACT

Record = dict[str, Any]
STYLE: dict[Any, Any] = {
    # A fixed salt and no date: the same record gives the same file.
    "svg.hashsalt": "acceptor",
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
LEAST_SHARE = 1e-5
"""Rarer sequences are drawn as if they were as frequent as this."""
BLUE, RED, ORANGE, GREY = "#2b6cb0", "#c53030", "#dd8a1b", "#999999"


def draw(record: Record, folder: Path) -> None:
    """Write all figures."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, figure in (
            ("proof-frequencies", _frequencies(record)),
            ("proof-p-values", _p_values(record)),
            ("proof-mutants", _mutants(record)),
        ):
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _frequencies(record: Record) -> Figure:
    rows = [row for row in record["samples"] if "observed" in row]
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots(2, -(-len(rows) // 2), sharex=True, sharey=True)
    for axis, row in zip(axes.flat, rows, strict=False):
        observed = np.array(row["observed"]) / sum(row["observed"])
        observed = observed.clip(LEAST_SHARE)
        axis.plot([1e-4, 0.3], [1e-4, 0.3], color=GREY, linewidth=0.8)
        color = BLUE if row["lossless"] else RED
        axis.scatter(row["expected"], observed, s=6, color=color, linewidths=0)
        axis.set(xscale="log", yscale="log", xlim=(1e-4, 0.3), ylim=(LEAST_SHARE / 2, 0.3))
        axis.set_xticks([1e-3, 1e-2, 1e-1])
        axis.set_title(row["policy"] + ("" if row["lossless"] else " (lossy)"))
    figure.supxlabel("expected share of the sequence")
    figure.supylabel("observed share")
    return figure


def _p_values(record: Record) -> Figure:
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axis = figure.subplots()
    rows = [row for row in record["samples"] if row["lossless"] and "observed" in row]
    for row, marker in zip(rows, "osD^", strict=False):
        p_values = np.sort(row["p_values"])
        expected = (np.arange(len(p_values)) + 0.5) / len(p_values)
        axis.plot(expected, p_values, marker, markersize=3, label=row["policy"])
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    axis.set(xlabel="quantile of the uniform law", ylabel="p-value of a part of the runs")
    axis.legend(frameon=False)
    return figure


def _mutants(record: Record) -> Figure:
    rows = [row for row in record["mutants"] if row["parts"]]
    figure = Figure(figsize=(8, 0.24 * len(rows) + 0.9), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(rows))[::-1]
    views = (("first", "first token", "o", BLUE), ("conditional", "token given token", "D", RED))
    for view, label, marker, color in views:
        errors = [max(row["parts"][view], 1e-17) for row in rows]
        axis.scatter(errors, places, s=16, marker=marker, color=color, label=label)
    axis.axvline(EXACT, color=GREY, linewidth=0.8)
    axis.annotate(" up to here it may be rounding", (EXACT, len(rows) - 0.9), color=GREY)
    axis.set(xscale="log", xlim=(3e-18, 3), xlabel="largest error of a probability")
    axis.set_yticks(places, [row["mutant"] for row in rows])
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.45, 0.0))
    return figure
