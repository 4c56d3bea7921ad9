"""A benchmark's pictures: acceptance per position, spread of latencies, throughput against K."""

from collections.abc import Iterable, Sequence
from itertools import chain, product
from operator import attrgetter
from pathlib import Path

from .files import BASELINE, Look, Picture
from .latency import NAMES, PERCENTILES
from .results import BenchResults, BenchRun
from .tables import comparable, longest, table_name

_MARKERS = "osD^vPXh"
_DASHES = ("-", "--", ":", "-.")
_LATENCIES = ("ttft", "tpot", "itl")


def draw_all(
    results: BenchResults, directory: Path, suffix: str = ".svg", *, cpu_time: bool = False
) -> list[Path]:
    """Draw all pictures that the runs allow; files are named after their content.

    With `cpu_time` there are no latencies, and throughput is per second of processor time.

    Raises:
        ConfigError: the directory cannot be made.
        UnavailableError: matplotlib is missing.
    """
    pictures = {
        "acceptance-per-position": _acceptance(results.runs),
        "latency": latencies(() if cpu_time else results.runs),
        "throughput": _throughput(results.runs, cpu_time=cpu_time),
    }
    drawn = {directory / f"{name}{suffix}": one for name, one in pictures.items() if one.panels}
    for path, picture in drawn.items():
        picture.draw(path)
    return [*drawn]


def _look(run: BenchRun, runs: Sequence[BenchRun], *, dashed: bool = False) -> Look:
    """A policy's look, the same in every picture; an adaptive K is a star, plain is black.

    Dashes tell one K from another.
    """
    if not run.setting.num_spec_tokens:
        return BASELINE
    drafting = [one.setting for one in runs if one.setting.num_spec_tokens]
    place = [*dict.fromkeys(one.line for one in drafting)].index(run.setting.line)
    usual = "" if dashed else _MARKERS[place % len(_MARKERS)]
    marker, size = ("*", 9) if run.setting.adaptive else (usual, 4)
    look = {"color": f"C{place}", "marker": marker, "markersize": size}
    if dashed:
        lengths = sorted({one.num_spec_tokens for one in drafting})
        dashes = _DASHES[lengths.index(run.setting.num_spec_tokens) % len(_DASHES)]
        look |= {"linestyle": dashes, "markevery": 4}
    return look


def _by_length(runs: Iterable[BenchRun]) -> list[BenchRun]:
    """The runs of one panel after the other."""
    return sorted(runs, key=attrgetter("setting.table", "setting.num_spec_tokens"))


def _acceptance(runs: Sequence[BenchRun]) -> Picture:
    """One panel per temperature and backend, one line per policy: its longest drafts."""
    picture = Picture("position in the draft", "drafts accepted through it, %")
    drafting = [run for run in runs if run.figures.acceptance.num_drafts]
    line_of = attrgetter("setting.table", "setting.line", "setting.adaptive")
    for run in {line_of(run): run for run in _by_length(drafting)}.values():
        rates = run.figures.acceptance.acceptance_rate_per_pos
        points = enumerate(100 * rate for rate in rates)
        picture.add(table_name(run), run.setting.label, _look(run, runs), *points)
    return picture


def latencies(runs: Sequence[BenchRun]) -> Picture:
    """The share of requests (for ITL of steps) that take no longer; one panel per kind of time."""
    picture = Picture("milliseconds", "requests (ITL: steps) within it, %")
    groups = comparable(runs)
    for run, name in product(chain.from_iterable(groups), _LATENCIES):
        which = f", {table_name(run)}" if len(groups) > 1 else ""
        percentiles = getattr(run.figures, name).percentiles
        if percentiles:
            points, look = zip(percentiles, PERCENTILES, strict=True), _look(run, runs, dashed=True)
            picture.add(NAMES[name] + which, run.setting.label, look, *points)
    return picture


def _throughput(runs: Sequence[BenchRun], *, cpu_time: bool) -> Picture:
    """Output tokens per second against K, one line per policy; plain decoding is horizontal."""
    unit = f"output tokens per {'CPU ' if cpu_time else ''}second"
    picture = Picture("K, tokens per draft", unit)
    for run in _by_length(runs):
        setting, figures = run.setting, run.figures
        speed = figures.tokens_per_cpu_second if cpu_time else figures.output_throughput
        ends = (setting.num_spec_tokens,) if setting.num_spec_tokens else (0, longest(runs))
        name = setting.label if setting.adaptive else setting.line
        for end in ends:
            picture.add(table_name(run), name, _look(run, runs), (end, speed or 0.0))
    return picture
