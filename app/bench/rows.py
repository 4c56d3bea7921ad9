"""The rows of a benchmark's tables: each one's name, value and format.

Names are the field's, so that tables of several tools can be compared.
"""

from collections.abc import Callable, Iterator
from itertools import starmap

from attrs import frozen

from .figures import Acceptance, Figures
from .latency import NAMES

Value = Callable[[Figures], float | None]


@frozen
class Row:
    """One figure.

    Attributes:
        name: its name, with the unit.
        value: computes it for a run; None if the run has none.
        digits: digits after the decimal point; from 1,000 on at most one.
        differs: whether a difference to another run is meaningful.
        in_points: whether it is a percentage, whose differences are in points.
        by_the_wall: whether other work on the machine changes it.
    """

    name: str
    value: Value
    digits: int = 2
    differs: bool = True
    in_points: bool = False
    more_is_better: bool = True
    by_the_wall: bool = False

    def text(self, figures: Figures) -> str:
        """A run's value as text."""
        value = self.value(figures)
        if value is None:
            return "–"
        digits = min(self.digits, 1) if abs(value) >= 1000 else self.digits
        return f"{value:,.{digits}f}"

    def difference(self, figures: Figures, base: Figures | None) -> str:
        """The difference of two runs as text; empty if that is not meaningful."""
        value, before = self.value(figures), None if base is None else self.value(base)
        if not self.differs or value is None or before is None:
            return ""
        if self.in_points:
            return f"{value - before:+.1f}"
        return f"{value / before - 1:+.1%}" if before else ""

    def style(self, difference: str) -> str:
        """The style of a difference on a terminal."""
        if difference.strip("+-0.%") == "":
            return "dim"
        return "green" if difference.startswith("+") is self.more_is_better else "red"


Section = tuple[str, tuple[Row, ...]]
"""A heading and the rows below it."""

REQUESTS: Section = (
    "requests and tokens",
    (
        Row("successful requests", lambda f: f.num_successful, 0, differs=False),
        Row("failed requests", lambda f: f.num_failed, 0, differs=False),
        Row("duration (s)", lambda f: f.duration, more_is_better=False, by_the_wall=True),
        Row("processor time (s)", lambda f: f.cpu_seconds or None, more_is_better=False),
        Row("output tokens per CPU second", lambda f: f.tokens_per_cpu_second),
        Row("input tokens", lambda f: f.num_input_tokens, 0, differs=False),
        Row("generated tokens", lambda f: f.num_output_tokens, 0, differs=False),
        Row("request throughput (req/s)", lambda f: f.request_throughput, by_the_wall=True),
        Row("output token throughput (tok/s)", lambda f: f.output_throughput, by_the_wall=True),
        Row("peak output throughput (tok/s)", lambda f: f.peak_output_throughput, by_the_wall=True),
        Row("peak concurrent requests", lambda f: f.peak_concurrency, 0, differs=False),
        Row("total token throughput (tok/s)", lambda f: f.total_throughput, by_the_wall=True),
    ),
)


def _latency(name: str, title: str) -> Section:
    def row(what: str) -> Row:
        return Row(
            f"{what.replace('p99', 'P99')} {name.upper()} (ms)",
            lambda figures: getattr(getattr(figures, name), what),
            more_is_better=False,
            by_the_wall=True,
        )

    return title, tuple(row(what) for what in ("mean", "median", "p99"))


def _of_drafts(value: Callable[[Acceptance], float]) -> Value:
    return lambda f: value(f.acceptance) if f.acceptance.num_drafts else None


ACCEPTANCE: Section = (
    "speculative decoding",
    (
        Row(
            "acceptance rate (%)", _of_drafts(lambda a: 100 * a.acceptance_rate), 1, in_points=True
        ),
        Row("acceptance length", _of_drafts(lambda a: a.acceptance_length)),
        Row("drafts", lambda f: f.acceptance.num_drafts, 0, differs=False),
        Row("draft tokens", lambda f: f.acceptance.num_draft_tokens, 0, differs=False),
        Row("accepted tokens", lambda f: f.acceptance.num_accepted_tokens, 0, differs=False),
        Row("final tokens", lambda f: f.acceptance.num_final_tokens, 0, differs=False),
    ),
)


PER_POSITION = "acceptance per position (%)"


def position(place: int) -> Row:
    """The share of drafts accepted through a place."""

    def value(figures: Figures) -> float | None:
        rates = figures.acceptance.acceptance_rate_per_pos
        return 100 * rates[place] if place < len(rates) else None

    return Row(f"position {place}", value, 1, in_points=True)


def sections(num_spec_tokens: int, *, cpu_time: bool = False) -> Iterator[Section]:
    """All sections, for drafts of at most this many tokens.

    With `cpu_time` rows that depend on wall-clock time are left out.
    """
    shown = [REQUESTS, *starmap(_latency, NAMES.items())]
    if num_spec_tokens:
        positions = tuple(map(position, range(num_spec_tokens)))
        shown += [ACCEPTANCE, (PER_POSITION, positions)]
    for title, rows in shown:
        left = tuple(row for row in rows if not (cpu_time and row.by_the_wall))
        if left:
            yield title, left
