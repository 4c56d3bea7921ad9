"""The tables of `acceptor tune`, for the terminal and for documents."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ..bench.sweep import PLAIN
from ..bench.table import Cell, Table
from .costs import PARTS
from .goodput import recommend
from .results import TuneResults

MILLISECONDS = 1e3


def print_results(console: Console, results: TuneResults) -> None:
    """Print what was measured, what follows and what to choose."""
    tables = {"drafts accepted through a position (%)": acceptance_table(results)}
    for policy in results.policies:
        tables[f"milliseconds of a step under {policy}"] = cost_table(results, policy)
    for concurrency in results.concurrencies:
        title = f"predicted {unit(results)}, {concurrency} at a time"
        tables[title] = prediction_table(results, concurrency)
    for title, table in tables.items():
        console.print(Text(title, style="bold"), soft_wrap=True)
        console.print(table.as_rich(), "")
    for concurrency in results.concurrencies:
        console.print(Text(recommendation(results, concurrency), style="bold"), soft_wrap=True)


def as_markdown(results: TuneResults) -> str:
    """Where it was measured, and what to choose."""
    machine, load = results.machine, results.load
    about = (
        f"Measured on {results.date}: {machine['device']}, torch {machine['torch']}, backend "
        f"{results.backend}, temperature {results.temperature:g}, {load.output_len} tokens per "
        f"request{', seconds of processor time' if results.cpu_time else ''}.\n"
    )
    parts = [about, *(f"- {recommendation(results, one)}" for one in results.concurrencies)]
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
    # What was never measured apart has no column.
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
    policies = list(results.policies)
    here = [one for one in results.predictions if one.concurrency == concurrency]
    best = recommend(here, concurrency)
    rows: list[Sequence[Cell]] = []
    for length in sorted({one.num_spec_tokens for one in here}):
        cells = {
            one.policy: Text(
                f"{one.tokens_per_second:,.1f}", style="bold green" if one == best else ""
            )
            for one in here
            if one.num_spec_tokens == length
        }
        shown = (cells.get(policy, cells.get(PLAIN, "")) for policy in policies)
        rows.append([f"K={length}" if length else PLAIN, *shown])
    return Table(head=["", *policies], rows=rows)


def recommendation(results: TuneResults, concurrency: int) -> str:
    """One sentence."""
    best = recommend(results.predictions, concurrency)
    choice = f"policy {best.policy}, K={best.num_spec_tokens}" if best.num_spec_tokens else PLAIN
    speed = f"{best.tokens_per_second:,.1f} {unit(results)}"
    text = f"at {concurrency} at a time take {choice}: {speed}"
    plain = [
        one.tokens_per_second
        for one in results.predictions
        if one.policy == PLAIN and one.concurrency == concurrency
    ]
    if plain and best.num_spec_tokens:
        text += f", {best.tokens_per_second / plain[0]:.2f} times plain decoding"
    return text
