"""A benchmark's pictures: acceptance per position, spread of latencies, throughput against K."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .drawing import Points, count_on_x, draw_against_k, panels_of, picture, put_legend
from .latency import PERCENTILES, Distribution
from .results import BenchResults, BenchRun
from .tables import comparable, table_name

_MARKERS = "osD^vPXh"
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
        UnavailableError: matplotlib is missing.
    """
    drawn = []
    for name, draw, wanted in (
        ("acceptance-per-position", draw_acceptance, _drafting(results.runs)),
        ("latency", draw_latencies, () if cpu_time else results.runs),
        ("throughput", partial(draw_throughput, cpu_time=cpu_time), results.runs),
    ):
        if wanted:
            drawn.append(directory / f"{name}{suffix}")
            with picture(drawn[-1], 8, 3.4) as figure:
                draw(figure, wanted)
    return drawn


def _drafting(runs: Iterable[BenchRun]) -> list[BenchRun]:
    return [run for run in runs if run.figures.acceptance.num_drafts]


def _looks(runs: Sequence[BenchRun]) -> Mapping[str, dict[str, Any]]:
    """Each policy looks the same in every picture; with an adaptive K it is a star."""
    lines = dict.fromkeys(run.setting.line for run in runs if run.setting.num_spec_tokens)
    looks: dict[str, dict[str, Any]] = {
        line: {"color": f"C{place}", "marker": _MARKERS[place % len(_MARKERS)], "markersize": 4}
        for place, line in enumerate(lines)
    }
    star = {"marker": "*", "markersize": 9, "linestyle": ""}
    adaptive = [run.setting for run in runs if run.setting.adaptive]
    return looks | {one.label: looks[one.line] | star for one in adaptive}


def draw_acceptance(figure: Any, runs: Sequence[BenchRun]) -> None:
    """One panel per temperature and backend, one line per policy: its longest drafts."""
    looks, groups = _looks(runs), list(comparable(runs))
    panels = panels_of(figure, len(groups))
    for axes, group in zip(panels, groups, strict=True):
        longest = {
            run.setting.line: run
            for run in sorted(group, key=lambda run: run.setting.num_spec_tokens)
        }
        for line in dict.fromkeys(run.setting.line for run in group):
            rates = longest[line].figures.acceptance.acceptance_rate_per_pos
            shares = [100 * rate for rate in rates]
            axes.plot(shares, label=longest[line].setting.label, **looks[line])
        axes.set(xlabel="position in the draft", ylim=(0, 102), title=table_name(group[0]))
        count_on_x(axes)
    panels[0].set_ylabel("drafts accepted through it, %")
    put_legend(figure, panels[-1])


def draw_latencies(figure: Any, runs: Sequence[BenchRun]) -> None:
    """How many requests, and for ITL steps, take no longer; one panel per kind of time."""
    panels, several = panels_of(figure, len(_LATENCIES)), len(list(comparable(runs))) > 1
    looks = _looks(runs)
    lengths = sorted({run.setting.num_spec_tokens for run in runs} - {0})
    for axes, (name, title) in zip(panels, _LATENCIES, strict=True):
        for run in runs:
            spread: Distribution = getattr(run.figures, name)
            if spread.percentiles:
                label = run.setting.label + (f", {table_name(run)}" if several else "")
                look = _line(run, looks, lengths)
                axes.plot(spread.percentiles, PERCENTILES, label=label, **look)
        axes.set(xlabel=f"{title}, ms", ylim=(0, 101), xlim=(0, None))
    panels[0].set_ylabel("requests (ITL: steps) within it, %")
    put_legend(figure, panels[-1])


def _line(
    run: BenchRun, looks: Mapping[str, dict[str, Any]], lengths: Sequence[int]
) -> dict[str, Any]:
    """Colour by policy, dashes by K; stars for an adaptive one, black for plain decoding."""
    if not run.setting.num_spec_tokens:
        return {"color": "black"}
    color = looks[run.setting.line]["color"]
    if run.setting.adaptive:
        return {"color": color, "marker": "*", "markevery": 4}
    dashes = _DASHES[lengths.index(run.setting.num_spec_tokens) % len(_DASHES)]
    return {"color": color, "linestyle": dashes}


def draw_throughput(figure: Any, runs: Sequence[BenchRun], *, cpu_time: bool = False) -> None:
    """Output tokens per second against K, one line per policy, plain decoding as a level.

    With `cpu_time` the seconds are of processor time.
    """
    looks, groups = _looks(runs), list(comparable(runs))
    longest = max(run.setting.num_spec_tokens for run in runs)
    speeds = {run.setting: _speed(run, cpu_time=cpu_time) for run in runs}
    fastest = max(speeds.values())
    panels = panels_of(figure, len(groups))
    for axes, group in zip(panels, groups, strict=True):
        lines: dict[str, Points] = {}
        for run in sorted(group, key=lambda run: run.setting.num_spec_tokens):
            setting, point = run.setting, (run.setting.num_spec_tokens, speeds[run.setting])
            name = setting.label if setting.adaptive else setting.line
            lines.setdefault(name, []).append(point)
        draw_against_k(axes, lines, looks)
        axes.set(xlim=(0, longest + 1), ylim=(0, 1.05 * fastest or 1.0), title=table_name(group[0]))
    panels[0].set_ylabel(f"output tokens per {'CPU ' if cpu_time else ''}second")
    put_legend(figure, panels[-1])


def _speed(run: BenchRun, *, cpu_time: bool) -> float:
    figures = run.figures
    return (figures.tokens_per_cpu_second or 0.0) if cpu_time else figures.output_throughput
