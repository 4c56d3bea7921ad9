"""A benchmark's figures: acceptance per position, spread of latencies, throughput against K.

The suffix of a file chooses its format.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from attrs import frozen
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .files import make_room
from .latency import PERCENTILES, Distribution
from .results import BenchResults, BenchRun
from .tables import comparable

STYLE: Any = {
    # A fixed salt and no date: the same figures give the same file.
    "svg.hashsalt": "acceptor",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_MARKERS = "osD^vPXh"
_ADAPTIVE = "*"
_DASHES = ("-", "--", ":", "-.")
_LATENCIES = (
    ("ttft", "time to first token"),
    ("tpot", "time per output token"),
    ("itl", "inter-token latency"),
)


def draw_all(
    results: BenchResults, directory: Path, suffix: str = ".svg", *, cpu_time: bool = False
) -> list[Path]:
    """Draw what the runs have; the files are named after what they show.

    With `cpu_time` there are no latencies, and throughput is per second of processor time.

    Raises:
        ConfigError: the directory cannot be made.
    """
    make_room(directory / "picture")
    drawn = []
    for name, draw, wanted in (
        ("acceptance-per-position", draw_acceptance, _drafting(results.runs)),
        ("latency", draw_latencies, () if cpu_time else results.runs),
        ("throughput", partial(draw_throughput, cpu_time=cpu_time), results.runs),
    ):
        if wanted:
            drawn.append(directory / f"{name}{suffix}")
            save(draw, wanted, drawn[-1])
    return drawn


Draw = Callable[[Figure, Sequence[BenchRun]], None]


def save(draw: Draw, runs: Sequence[BenchRun], path: Path) -> None:
    """Draw one picture into a file."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        draw(figure, runs)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata, dpi=150)


def _drafting(runs: Sequence[BenchRun]) -> list[BenchRun]:
    return [run for run in runs if run.figures.acceptance.num_drafts]


@frozen
class Looks:
    """A policy looks the same in every picture; plain decoding is black."""

    policies: tuple[str, ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, runs: Sequence[BenchRun]) -> "Looks":
        """In the order of the runs."""
        settings = [run.setting for run in runs if run.setting.num_spec_tokens]
        return cls(
            tuple(dict.fromkeys(setting.policy for setting in settings)),
            tuple(sorted({setting.num_spec_tokens for setting in settings})),
        )

    def points(self, policy: str) -> dict[str, Any]:
        """Colour and marker."""
        place = self.policies.index(policy)
        marker = _MARKERS[place % len(_MARKERS)]
        return {"color": f"C{place}", "marker": marker, "markersize": 4}

    def line(self, run: BenchRun) -> dict[str, Any]:
        """Colour by policy, dashes by K; stars for an adaptive one."""
        if not run.setting.num_spec_tokens:
            return {"color": "black"}
        look: dict[str, Any] = {"color": f"C{self.policies.index(run.setting.policy)}"}
        if run.setting.adaptive:
            return {**look, "marker": _ADAPTIVE, "markevery": 4}
        dashes = _DASHES[self.lengths.index(run.setting.num_spec_tokens) % len(_DASHES)]
        return {**look, "linestyle": dashes}


def draw_acceptance(figure: Figure, runs: Sequence[BenchRun]) -> None:
    """One panel per temperature and backend, one line per policy: its longest drafts."""
    looks, groups = Looks.of(runs), [_longest_drafts(group) for group in comparable(runs)]
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, group in zip(panels, groups, strict=True):
        for run in group:
            rates = run.figures.acceptance.acceptance_rate_per_pos
            places = range(len(rates))
            shares = [100 * rate for rate in rates]
            axes.plot(places, shares, label=run.setting.label, **looks.points(run.setting.policy))
        axes.set(xlabel="position in the draft", ylim=(0, 102), title=_title(group[0]))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_ylabel("drafts accepted through it, %")
    put_legend(figure, panels[-1])


def _longest_drafts(runs: Sequence[BenchRun]) -> list[BenchRun]:
    longest: dict[str, BenchRun] = {}
    for run in runs:
        known = longest.setdefault(run.setting.policy, run)
        if run.setting.num_spec_tokens > known.setting.num_spec_tokens:
            longest[run.setting.policy] = run
    return list(longest.values())


def _title(run: BenchRun) -> str:
    temperature, backend = run.setting.table
    return f"temperature {temperature:g}, backend {backend}"


def draw_latencies(figure: Figure, runs: Sequence[BenchRun]) -> None:
    """How many requests, and for ITL steps, take no longer; one panel per kind of time."""
    panels = figure.subplots(1, len(_LATENCIES), sharey=True)
    looks, several = Looks.of(runs), len(list(comparable(runs))) > 1
    for axes, (name, title) in zip(panels, _LATENCIES, strict=True):
        for run in runs:
            spread: Distribution = getattr(run.figures, name)
            if spread.percentiles:
                label = f"{run.setting.label}, {_title(run)}" if several else run.setting.label
                axes.plot(spread.percentiles, PERCENTILES, label=label, **looks.line(run))
        axes.set(xlabel=f"{title}, ms", ylim=(0, 101), xlim=(0, None))
    panels[0].set_ylabel("requests (ITL: steps) within it, %")
    put_legend(figure, panels[-1])


def draw_throughput(figure: Figure, runs: Sequence[BenchRun], *, cpu_time: bool = False) -> None:
    """Output tokens per second against K, one line per policy, plain decoding as a level.

    With `cpu_time` the seconds are of processor time.
    """
    looks, groups = Looks.of(runs), list(comparable(runs))
    longest = max(run.setting.num_spec_tokens for run in runs)
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    fastest = max(_speed(run, cpu_time=cpu_time) for run in runs)
    for axes, group in zip(panels, groups, strict=True):
        _draw_throughput(axes, group, looks, cpu_time=cpu_time)
        axes.set(xlabel="K, tokens per draft", xlim=(0, longest + 1), title=_title(group[0]))
        axes.set_ylim(0, 1.05 * fastest or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_ylabel(f"output tokens per {'CPU ' if cpu_time else ''}second")
    put_legend(figure, panels[-1])


def put_legend(figure: Figure, axes: Axes) -> None:
    """Beside all panels, where it hides nothing."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=8)


def _draw_throughput(axes: Axes, runs: Sequence[BenchRun], looks: Looks, *, cpu_time: bool) -> None:
    for run in runs:
        if not run.setting.num_spec_tokens:
            level = _speed(run, cpu_time=cpu_time)
            axes.axhline(level, color="black", linestyle="--", linewidth=1, label="plain")
    for policy, lengths, values in _lines(runs, cpu_time=cpu_time):
        axes.plot(lengths, values, label=policy, **looks.points(policy))
    for run in filter(_is_adaptive, runs):
        look = {**looks.points(run.setting.policy), "marker": _ADAPTIVE, "markersize": 9}
        place, value = run.setting.num_spec_tokens, _speed(run, cpu_time=cpu_time)
        axes.plot([place], [value], linestyle="", label=run.setting.label, **look)


def _speed(run: BenchRun, *, cpu_time: bool) -> float:
    figures = run.figures
    return (figures.tokens_per_cpu_second or 0.0) if cpu_time else figures.output_throughput


def _lines(
    runs: Sequence[BenchRun], *, cpu_time: bool
) -> Iterator[tuple[str, list[int], list[float]]]:
    fixed = [run for run in _drafting(runs) if not _is_adaptive(run)]
    for policy in dict.fromkeys(run.setting.policy for run in fixed):
        members = sorted(
            (run for run in fixed if run.setting.policy == policy),
            key=lambda run: run.setting.num_spec_tokens,
        )
        lengths = [run.setting.num_spec_tokens for run in members]
        yield policy, lengths, [_speed(run, cpu_time=cpu_time) for run in members]


def _is_adaptive(run: BenchRun) -> bool:
    return run.setting.adaptive
