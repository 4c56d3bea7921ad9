"""The curve of `acceptor tune`: tokens per second against K; crosses are runs that were checked."""

from pathlib import Path
from typing import Any

from ..bench.drawing import Points, draw_against_k, panels_of, picture, put_legend
from .results import TuneResults
from .tables import unit


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
        # Once all are drawn, as they share it.
        panels[0].set_ylim(bottom=0)
        panels[0].set_ylabel(f"output {unit(results).replace('tok/s', 'tokens per second')}")
        put_legend(figure, panels[-1])


def _draw(axes: Any, results: TuneResults, concurrency: int) -> None:
    looks = {policy: {"color": f"C{place}"} for place, policy in enumerate(results.policies)}
    lines: dict[str, Points] = {}
    for one in sorted(results.predictions, key=lambda one: one.num_spec_tokens):
        if one.concurrency == concurrency:
            points = lines.setdefault(one.policy, [])
            points.append((one.num_spec_tokens, one.tokens_per_second))
    draw_against_k(axes, lines, looks)
    for check in results.checks:
        one = check.prediction
        if one.concurrency == concurrency:
            color = looks.get(one.policy, {"color": "black"})
            axes.plot(one.num_spec_tokens, check.measured, "x", **color)
    if results.checks:
        axes.plot([], [], "x", color="grey", label="measured")
    axes.set_title(f"{concurrency} at a time")
