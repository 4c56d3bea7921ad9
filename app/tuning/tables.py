"""The tables of `acceptor tune`, for the terminal and for documents, and its curve."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.text import Text

from ..bench.latency import MILLISECONDS
from ..bench.picture import Line, Picture
from ..bench.sweep import PLAIN
from ..bench.table import Cell, Table
from .costs import PARTS
from .goodput import recommend
from .results import Check, TuneResults


def print_results(console: Console, results: TuneResults) -> None:
    """Print the measurements, the predictions and the recommendation."""
    tables = {"drafts accepted through a position (%)": acceptance_table(results)}
    for policy in results.policies:
        tables[f"milliseconds of a step under {policy}"] = cost_table(results, policy)
    for concurrency in results.concurrencies:
        title = f"predicted {unit(results)}, {concurrency} at a time"
        tables[title] = prediction_table(results, concurrency)
    if results.checks:
        tables[check_title(results)] = check_table(results)
    for title, table in tables.items():
        console.print(Text(title, style="bold"), soft_wrap=True)
        console.print(table.as_rich(), "")
    if results.checks:
        console.print(f"prediction error: {error_summary(results.checks)}")
    for concurrency in results.concurrencies:
        console.print(Text(recommendation(results, concurrency), style="bold"), soft_wrap=True)


def as_markdown(results: TuneResults) -> str:
    """The machine, the recommendation, and predictions beside measured runs."""
    machine, load = results.machine, results.load
    about = (
        f"Measured on {results.date}: {machine['device']}, torch {machine['torch']}, backend "
        f"{results.backend}, temperature {results.temperature:g}, {load.output_len} tokens per "
        f"request{', seconds of processor time' if results.cpu_time else ''}.\n"
    )
    parts = [about, *(f"- {recommendation(results, one)}" for one in results.concurrencies)]
    if results.checks:
        parts += [f"\n{check_title(results)}:\n", check_table(results).as_markdown()]
        parts.append(f"Prediction error: {error_summary(results.checks)}.")
    return "\n".join(parts) + "\n"


def acceptance_table(results: TuneResults) -> Table:
    """Rates through each position, for drafts as long as the longest measured ones."""
    width = max(len(one.profile.conditional) for one in results.policies.values())
    rows = [
        [policy, *(f"{100 * rate:.1f}" for rate in measured.profile.through(width))]
        for policy, measured in results.policies.items()
    ]
    return Table(head=["position", *map(str, range(width))], rows=rows)


def cost_table(results: TuneResults, policy: str) -> Table:
    """Milliseconds of a step, part by part."""
    costs = results.policies[policy].costs
    # A part that was never timed separately has no column.
    places = [place for place in range(len(PARTS)) if any(row[2 + place] for row in costs)]
    rows = []
    for num_reqs, length, *seconds in costs:
        parts = [*(seconds[place] for place in places), sum(seconds)]
        shown = (f"{MILLISECONDS * part:.2f}" for part in parts)
        rows.append([f"{num_reqs:g}", f"{length:g}", *shown])
    return Table(head=["requests", "K", *(PARTS[place] for place in places), "total"], rows=rows)


def unit(results: TuneResults) -> str:
    """The unit of speeds."""
    return "tokens per CPU second" if results.cpu_time else "tok/s"


def prediction_table(results: TuneResults, concurrency: int) -> Table:
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


def recommendation(results: TuneResults, concurrency: int) -> str:
    """The recommendation in one sentence."""
    best = recommend(results.predictions, concurrency)
    choice = f"policy {best.policy}, K={best.num_spec_tokens}" if best.num_spec_tokens else PLAIN
    speed = f"{best.tokens_per_second:,.1f} {unit(results)}"
    text = f"{concurrency} at a time: take {choice}, {speed}"
    plain = [
        one.tokens_per_second
        for one in results.predictions
        if one.policy == PLAIN and one.concurrency == concurrency
    ]
    if plain and best.num_spec_tokens:
        text += f", {best.tokens_per_second / plain[0]:.2f} times plain decoding"
    return text


def check_table(results: TuneResults) -> Table:
    """Predictions beside measured runs: a row per policy and K, a column per concurrency."""
    cells: dict[tuple[str, str], Cell] = {}
    for check in results.checks:
        one = check.prediction
        name = f"{one.policy}, K={one.num_spec_tokens}" if one.num_spec_tokens else one.policy
        text = f"{one.tokens_per_second:,.1f}/{check.measured:,.1f}\n({check.error:+.1%})"
        cells[name, f"{one.concurrency} at\na time"] = f"{text}*" if check.not_measured else text
    return Table.of("checked", cells)


def check_title(results: TuneResults) -> str:
    """What the cells of `check_table` hold."""
    return f"Predicted/measured {unit(results)} (error), * not measured before"


def error_summary(checks: Sequence[Check]) -> str:
    """Mean and largest absolute error, separately for choices that were not measured before."""
    texts = []
    for name, is_new in (("", False), ("out of sample ", True)):
        sizes = [abs(check.error) for check in checks if bool(check.not_measured) is is_new]
        if sizes:
            texts.append(f"{name}{fmean(sizes):.1%} on average, {max(sizes):.1%} at worst")
    return "; ".join(texts)


def curve(results: TuneResults) -> Picture:
    """One panel per concurrency, one line per policy; plain decoding is a horizontal line."""
    panels = {f"{one} at a time": dict(_lines(results, one)) for one in results.concurrencies}
    tokens = unit(results).replace("tok/s", "tokens per second")
    return Picture(x_label="K, tokens per draft", y_label=f"output {tokens}", panels=panels)


def _lines(results: TuneResults, concurrency: int) -> Iterator[tuple[str, Line]]:
    measured = {check.prediction: check.measured for check in results.checks}
    by_length = sorted(results.predictions, key=lambda one: one.num_spec_tokens)
    here = [one for one in by_length if one.concurrency == concurrency]
    for name in dict.fromkeys(one.policy for one in here):
        mine = [one for one in here if one.policy == name]
        points = [(one.num_spec_tokens, one.tokens_per_second) for one in mine]
        look: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1}
        if name in results.policies:
            look = {"color": f"C{[*results.policies].index(name)}"}
        else:
            points.append((by_length[-1].num_spec_tokens, points[0][1]))
        yield name, (points, look)
        checked = [(one.num_spec_tokens, measured[one]) for one in mine if one in measured]
        if checked:
            cross = {"color": look["color"], "marker": "x", "linestyle": ""}
            yield f"{name}, measured", (checked, cross)
