"""The curve of `acceptor tune`: tokens per second against K; crosses are runs that were checked."""

from pathlib import Path
from typing import Any

from ..bench.drawing import count_on_x, panels_of, picture, put_legend
from ..bench.sweep import PLAIN
from .results import TuneResults
from .tables import unit

Points = list[tuple[int, float]]


def draw_curve(results: TuneResults, path: Path) -> None:
    """One panel per concurrency, one line per policy.

    Raises:
        ConfigError: the file's folder cannot be made.
        UnavailableError: matplotlib is missing.
    """
    concurrencies = results.concurrencies
    with picture(path, 3.2 * len(concurrencies) + 1.8, 3.2) as figure:
        panels = panels_of(figure, len(concurrencies))
        for axes, concurrency in zip(panels, concurrencies, strict=True):
            _draw(axes, results, concurrency)
        panels[0].set_ylabel(f"output {unit(results).replace('tok/s', 'tokens per second')}")
        put_legend(figure, panels[-1])


def _draw(axes: Any, results: TuneResults, concurrency: int) -> None:
    for place, policy in enumerate(results.policies):
        predicted, measured = _points(results, concurrency, policy)
        axes.plot(*zip(*predicted, strict=True), label=policy, color=f"C{place}")
        for point in measured:
            axes.plot(*point, "x", color=f"C{place}")
    predicted, measured = _points(results, concurrency, PLAIN)
    for _, level in predicted:
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label=PLAIN)
    for point in measured:
        axes.plot(*point, "kx")
    if results.checks:
        axes.plot([], [], "x", color="grey", label="measured")
    axes.set(title=f"{concurrency} at a time", xlabel="K, tokens per draft")
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    count_on_x(axes)


def _points(results: TuneResults, concurrency: int, policy: str) -> tuple[Points, Points]:
    """(K, tokens per second), as predicted and as measured."""
    key = policy, concurrency
    predicted = sorted(
        (one.num_spec_tokens, one.tokens_per_second)
        for one in results.predictions
        if (one.policy, one.concurrency) == key
    )
    measured = [
        (check.prediction.num_spec_tokens, check.measured)
        for check in results.checks
        if (check.prediction.policy, check.prediction.concurrency) == key
    ]
    return predicted, measured
