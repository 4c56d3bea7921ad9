"""The tables of `acceptor tune` for documents."""

from collections.abc import Iterator

from ..bench.markdown import table
from ..bench.sweep import PLAIN
from .results import Check, TuneResults
from .tables import NEW, error_summary, recommendation, unit, what_is_new


def as_markdown(results: TuneResults) -> str:
    """Where it was measured, what to choose, and predictions beside runs."""
    return "\n".join(_parts(results))


def _parts(results: TuneResults) -> Iterator[str]:
    machine, load = results.machine, results.load
    yield (
        f"Measured on {results.date}: {machine['device']}, torch {machine['torch']}, backend "
        f"{results.backend}, temperature {results.temperature:g}, "
        f"{load.output_len} tokens per "
        f"request{', seconds of processor time' if results.cpu_time else ''}.\n"
    )
    for concurrency in results.concurrencies:
        yield f"- {recommendation(results, concurrency).plain}"
    if results.checks:
        head = ["", "K", "at a time", f"predicted {unit(results)}", "measured", "error", NEW]
        yield "\n" + table(head, map(_row, results.checks))
        yield f"Prediction error: {error_summary(results.checks)}.\n"


def _row(check: Check) -> list[str]:
    one = check.prediction
    return [
        one.policy if one.num_spec_tokens else PLAIN,
        str(one.num_spec_tokens),
        str(one.concurrency),
        f"{one.tokens_per_second:,.1f}",
        f"{check.measured:,.1f}",
        f"{check.error:+.1%}".replace("%", " %"),
        what_is_new(check),
    ]
