"""The curve of `acceptor tune`: tokens per second against K; crosses are runs that were checked.

The suffix of the file chooses its format.
"""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..bench.files import make_room
from ..bench.plots import STYLE, put_legend
from ..bench.sweep import PLAIN
from .results import TuneResults


def draw_curve(results: TuneResults, path: Path) -> None:
    """One panel per concurrency, one line per policy."""
    make_room(path)
    concurrencies = results.concurrencies
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.2 * len(concurrencies) + 1.8, 3.2), layout="constrained")
        panels = figure.subplots(1, len(concurrencies), squeeze=False)[0]
        for axes, concurrency in zip(panels, concurrencies, strict=True):
            _draw(axes, results, concurrency)
        unit = "CPU second" if results.cpu_time else "second"
        panels[0].set_ylabel(f"output tokens per {unit}")
        put_legend(figure, panels[-1])
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata, dpi=150)


def _draw(axes: Axes, results: TuneResults, concurrency: int) -> None:
    for place, policy in enumerate(results.policies):
        look: dict[str, Any] = {"color": f"C{place}"}
        axes.plot(*_points(results, concurrency, policy), label=policy, **look)
        axes.plot(*_measured(results, concurrency, policy), "x", **look)
    (_, plain), (_, checked) = (
        _points(results, concurrency, PLAIN),
        _measured(results, concurrency, PLAIN),
    )
    for level in plain:
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label=PLAIN)
    axes.plot([0] * len(checked), checked, "kx")
    if results.checks:
        axes.plot([], [], "x", color="grey", label="measured")
    axes.set(title=f"{concurrency} at a time", xlabel="K, tokens per draft")
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _points(results: TuneResults, concurrency: int, policy: str) -> tuple[list[int], list[float]]:
    points = sorted(
        (one.num_spec_tokens, one.tokens_per_second)
        for one in results.predictions
        if (one.policy, one.concurrency) == (policy, concurrency)
    )
    return [length for length, _ in points], [value for _, value in points]


def _measured(results: TuneResults, concurrency: int, policy: str) -> tuple[list[int], list[float]]:
    checks = [
        check
        for check in results.checks
        if (check.prediction.policy, check.prediction.concurrency) == (policy, concurrency)
    ]
    return [one.prediction.num_spec_tokens for one in checks], [one.measured for one in checks]
