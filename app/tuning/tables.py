"""What `acceptor tune` prints."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..bench.sweep import PLAIN
from .costs import PARTS
from .goodput import Prediction, recommend
from .results import Check, TuneResults

MILLISECONDS = 1e3
NEW = "not measured"
"""Head of the column that says what of a prediction was not measured for it."""


def print_results(console: Console, results: TuneResults) -> None:
    """Print what was measured, what follows and what to choose."""
    _print_title(console, "drafts accepted through a position (%)")
    console.print(acceptance_table(results))
    for policy in results.policies:
        _print_title(console, f"milliseconds of a step under {policy}")
        console.print(cost_table(results, policy))
    for concurrency in results.concurrencies:
        console.print(prediction_table(results, concurrency))
    if results.checks:
        console.print(check_table(results.checks))
        console.print(f"prediction error: {error_summary(results.checks)}")
    for concurrency in results.concurrencies:
        console.print(recommendation(results, concurrency), soft_wrap=True)


def _print_title(console: Console, title: str) -> None:
    # Not the table's own title, which would be broken to its width.
    console.print(Text(title, style="bold"), soft_wrap=True)


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(first, no_wrap=True)
    for head in others:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def acceptance_table(results: TuneResults) -> Table:
    """Rates through each position, for drafts as long as the longest measured ones."""
    width = max(len(one.profile.conditional) for one in results.policies.values())
    table = _table("  position", *map(str, range(width)))
    for policy, measured in results.policies.items():
        rates = measured.profile.through(width)
        table.add_row(f"  {policy}", *(f"{100 * rate:.1f}" for rate in rates))
    return table


def cost_table(results: TuneResults, policy: str) -> Table:
    """Milliseconds of a step, part by part."""
    costs = results.policies[policy].costs
    # What was never measured apart has no column.
    places = [place for place in range(len(PARTS)) if any(row[2 + place] for row in costs)]
    table = _table("  requests", "K", *(PARTS[place] for place in places), "total")
    for num_reqs, length, *seconds in costs:
        parts = [*(seconds[place] for place in places), sum(seconds)]
        shown = [f"{MILLISECONDS * part:.2f}" for part in parts]
        table.add_row(f"  {num_reqs:g}", f"{length:g}", *shown)
    return table


def unit(results: TuneResults) -> str:
    """What a speed is given in."""
    return "tokens per CPU second" if results.cpu_time else "tok/s"


def prediction_table(results: TuneResults, concurrency: int) -> Table:
    """Tokens per second by K and policy, the best one bold."""
    policies = list(results.policies)
    table = _table(f"predicted {unit(results)}, {concurrency} at a time", *policies)
    here = [one for one in results.predictions if one.concurrency == concurrency]
    best = recommend(here, concurrency)
    for length in sorted({one.num_spec_tokens for one in here}):
        cells = {one.policy: _cell(one, best) for one in here if one.num_spec_tokens == length}
        shown = [cells.get(policy, cells.get(PLAIN, Text())) for policy in policies]
        table.add_row(f"  K={length}" if length else f"  {PLAIN}", *shown)
    return table


def _cell(prediction: Prediction, best: Prediction) -> Text:
    style = "bold green" if prediction == best else ""
    return Text(f"{prediction.tokens_per_second:,.1f}", style=style)


def recommendation(results: TuneResults, concurrency: int) -> Text:
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
    return Text(text, style="bold")


def check_table(checks: Iterable[Check]) -> Table:
    """Predictions beside runs."""
    table = _table("checked", "at a time", "predicted", "measured", "error", NEW)
    for check in checks:
        one = check.prediction
        name = f"{one.policy}, K={one.num_spec_tokens}" if one.num_spec_tokens else PLAIN
        table.add_row(
            f"  {name}",
            str(one.concurrency),
            f"{one.tokens_per_second:,.1f}",
            f"{check.measured:,.1f}",
            f"{check.error:+.1%}".replace("%", " %"),
            what_is_new(check),
        )
    return table


def what_is_new(check: Check) -> str:
    """What of a prediction was not measured for it."""
    if check.is_new_length and check.is_new_concurrency:
        return "both"
    return "K" if check.is_new_length else "concurrency" if check.is_new_concurrency else ""


def error_summary(checks: Sequence[Check]) -> str:
    """Mean and worst, without their signs, apart for what was not measured before."""
    kinds = [
        ("", [abs(check.error) for check in checks if not check.is_out_of_sample]),
        ("out of sample ", [abs(check.error) for check in checks if check.is_out_of_sample]),
    ]
    texts = [
        f"{name}{fmean(sizes):.1%} on average, {max(sizes):.1%} at worst".replace("%", " %")
        for name, sizes in kinds
        if sizes
    ]
    return "; ".join(texts)
