"""The results of `acceptor tune`: a measured run, predictions and checks, and their tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from attrs import frozen
from rich.console import Console
from rich.text import Text

from ..bench.files import BASELINE, Picture, read_record
from ..bench.latency import MILLISECONDS
from ..bench.sweep import PLAIN, Load
from ..bench.table import Cell, Table
from .costs import PARTS, CostRow
from .goodput import Goodput, Prediction, recommend


@frozen(kw_only=True)
class Check:
    """A prediction beside a run of the benchmark.

    Attributes:
        prediction: the model's prediction.
        measured: the run's tokens per second.
        is_new_length: whether the model had no measurement at this K.
        is_new_concurrency: whether the model had no measurement at this concurrency.
    """

    prediction: Prediction
    measured: float
    is_new_length: bool = False
    is_new_concurrency: bool = False

    @property
    def not_measured(self) -> bool:
        """Whether the model had no measurement at this K or at this concurrency."""
        return self.is_new_length or self.is_new_concurrency

    @property
    def error(self) -> float:
        """By what share of the measured speed the prediction was too high."""
        return self.prediction.tokens_per_second / self.measured - 1


@frozen(kw_only=True)
class TuneResults:
    """All results of a run.

    Attributes:
        date: the day, in UTC.
        machine: device and versions.
        models: names of target and draft.
        cpu_time: whether all seconds are processor time.
        policies: name -> the model from its measured run.
        checks: checks of some predictions; empty unless requested.
    """

    date: str
    machine: Mapping[str, str]
    models: Mapping[str, str]
    load: Load
    temperature: float
    backend: str
    cpu_time: bool
    policies: Mapping[str, Goodput]
    predictions: tuple[Prediction, ...]
    checks: tuple[Check, ...] = ()

    @property
    def concurrencies(self) -> list[int]:
        """The predicted concurrencies, ascending."""
        return sorted({one.concurrency for one in self.predictions})


def read_results(path: Path) -> TuneResults:
    """Read what `acceptor tune --json` wrote.

    Raises:
        ConfigError: the file cannot be read, or is not such a record.
    """
    return read_record(path, TuneResults, "tune")


def print_results(console: Console, results: TuneResults) -> None:
    """Print the measurements, the predictions and the recommendation."""
    tables = {"drafts accepted through a position (%)": _acceptance(results)}
    for policy, measured in results.policies.items():
        tables[f"milliseconds of a step under {policy}"] = _costs(measured.costs)
    for concurrency in results.concurrencies:
        title = f"predicted {_unit(results)}, {concurrency} at a time"
        tables[title] = _predictions(results, concurrency)
    if results.checks:
        tables[_check_title(results)] = _checks(results)
    for title, table in tables.items():
        console.print(Text(title, style="bold"), soft_wrap=True)
        console.print(table.as_rich(), "")
    if results.checks:
        console.print(f"prediction error: {_errors(results.checks)}")
    for concurrency in results.concurrencies:
        console.print(Text(_recommendation(results, concurrency), style="bold"), soft_wrap=True)


def as_markdown(results: TuneResults) -> str:
    """The machine, the recommendation, and predictions beside measured runs."""
    machine, load = results.machine, results.load
    about = (
        f"Measured on {results.date}: {machine['device']}, torch {machine['torch']}, backend "
        f"{results.backend}, temperature {results.temperature:g}, {load.lengths} tokens per "
        f"request{', seconds of processor time' if results.cpu_time else ''}.\n"
    )
    parts = [about, *(f"- {_recommendation(results, one)}" for one in results.concurrencies)]
    if results.checks:
        parts += [f"\n{_check_title(results)}:\n", _checks(results).as_markdown()]
        parts.append(f"Prediction error: {_errors(results.checks)}.")
    return "\n".join(parts) + "\n"


def _acceptance(results: TuneResults) -> Table:
    """Rates through each position, for drafts as long as the longest measured ones."""
    width = max(len(one.profile.conditional) for one in results.policies.values())
    rows = [
        [policy, *(f"{100 * rate:.1f}" for rate in measured.profile.through(width))]
        for policy, measured in results.policies.items()
    ]
    return Table(head=["position", *map(str, range(width))], rows=rows)


def _costs(costs: Sequence[CostRow]) -> Table:
    seconds = np.array(costs)[:, 2:]
    # A part that was never timed separately has no column.
    is_shown = seconds.any(axis=0)
    times = MILLISECONDS * np.column_stack([seconds[:, is_shown], seconds.sum(axis=1)])
    rows = [
        [f"{num_reqs:g}", f"{length:g}", *(f"{one:.2f}" for one in of)]
        for (num_reqs, length, *_), of in zip(costs, times, strict=True)
    ]
    return Table(head=["requests", "K", *np.array(PARTS)[is_shown], "total"], rows=rows)


def _unit(results: TuneResults) -> str:
    return "tokens per CPU second" if results.cpu_time else "tok/s"


def _predictions(results: TuneResults, concurrency: int) -> Table:
    """Tokens per second by K and policy, the best one bold."""
    here = [one for one in results.predictions if one.concurrency == concurrency]
    best = recommend(here, concurrency)
    cells: dict[tuple[str, str], Cell] = {}
    for one in sorted(here, key=lambda one: one.num_spec_tokens):
        name = f"K={one.num_spec_tokens}" if one.num_spec_tokens else PLAIN
        for policy in results.policies if one.policy == PLAIN else [one.policy]:
            style = "bold green" if one == best else ""
            cells[name, policy] = Text(f"{one.tokens_per_second:,.1f}", style)
    return Table.of("", cells)


def _recommendation(results: TuneResults, concurrency: int) -> str:
    best = recommend(results.predictions, concurrency)
    choice = f"policy {best.policy}, K={best.num_spec_tokens}" if best.num_spec_tokens else PLAIN
    text = f"{concurrency} at a time: take {choice}, {best.tokens_per_second:,.1f} {_unit(results)}"
    for one in results.predictions:
        if best.num_spec_tokens and (one.policy, one.concurrency) == (PLAIN, concurrency):
            text += f", {best.tokens_per_second / one.tokens_per_second:.2f} times plain decoding"
    return text


def _checks(results: TuneResults) -> Table:
    """Predictions beside measured runs: a row per policy and K, a column per concurrency."""
    cells: dict[tuple[str, str], Cell] = {}
    for check in results.checks:
        one = check.prediction
        name = f"{one.policy}, K={one.num_spec_tokens}" if one.num_spec_tokens else one.policy
        text = f"{one.tokens_per_second:,.1f}/{check.measured:,.1f}\n({check.error:+.1%})"
        cells[name, f"{one.concurrency} at\na time"] = f"{text}*" if check.not_measured else text
    return Table.of("checked", cells)


def _check_title(results: TuneResults) -> str:
    return f"Predicted/measured {_unit(results)} (error), * not measured before"


def _errors(checks: Sequence[Check]) -> str:
    """Mean and largest absolute error, separately for choices that were not measured before."""
    texts = []
    for name, is_new in (("", False), ("out of sample ", True)):
        sizes = [abs(check.error) for check in checks if check.not_measured is is_new]
        if sizes:
            texts.append(f"{name}{fmean(sizes):.1%} on average, {max(sizes):.1%} at worst")
    return "; ".join(texts)


def curve(results: TuneResults) -> Picture:
    """One panel per concurrency, one line per policy; plain decoding is a horizontal line."""
    tokens = _unit(results).replace("tok/s", "tokens per second")
    picture = Picture("K, tokens per draft", f"output {tokens}")
    measured = {check.prediction: check.measured for check in results.checks}
    looks: dict[str, Any] = {PLAIN: BASELINE}
    looks |= {name: {"color": f"C{place}"} for place, name in enumerate(results.policies)}
    by_length = sorted(results.predictions, key=lambda one: one.num_spec_tokens)
    for one in by_length:
        length, look, panel = one.num_spec_tokens, looks[one.policy], f"{one.concurrency} at a time"
        ends = (0, by_length[-1].num_spec_tokens) if one.policy == PLAIN else (length,)
        for end in ends:
            picture.add(panel, one.policy, look, (end, one.tokens_per_second))
        if one in measured:
            cross = {"color": look["color"], "marker": "x", "linestyle": ""}
            picture.add(panel, f"{one.policy}, measured", cross, (length, measured[one]))
    return picture
