"""`acceptor bench kernels`. What only a run needs is imported when it runs."""

from typing import Any

import click

from ...options import errors_in_one_line, flag, with_options
from ..options import FILE, FILES, NAMES, Several

_SEVERAL = click.IntRange(1)


def _between(low: int, high: int) -> Several:
    return Several(click.IntRange(low, high), "N")


_ROWS = (
    click.option(
        "--backend",
        "backends",
        multiple=True,
        default=("triton", "cupy"),
        show_default=True,
        help="Repeatable.",
    ),
    click.option("--headline", is_flag=True, help="The rows that backends are compared by."),
    click.option(
        "--worst",
        is_flag=True,
        help="Many rows with every kind of inputs, and which is slowest; by itself or with "
        "--headline.",
    ),
    click.option("--only", multiple=True, help="Rows whose name contains this. Repeatable."),
    flag(
        "--inputs",
        NAMES,
        "Of lm, zipf, flat, sharp, ties, mixed and bad.  [default: lm; all for --worst]",
    ),
    flag("--requests", _between(1, 2**16), "R.", "1,16,64,256"),
    flag("--spec-tokens", _between(0, 256), "K.", "3"),
    flag("--vocab-size", _between(1, 2**24), "V.", "151936"),
    flag("--dtype", str, "Of both models' logits.", "bfloat16"),
    click.option(
        "--policy",
        "policies",
        multiple=True,
        default=("probabilistic",),
        show_default=True,
        help="Repeatable.",
    ),
    flag("--temperature", float, "0 is greedy.", 0.8),
    flag("--min-p", float, "Of both models.", 0.0),
    flag("--top-k", int, "Of both models.", 0),
    flag("--top-p", float, "Of both models.", 1.0),
    flag("--repetition-penalty", float, "Of each request.", 1.0),
    flag("--logit-biases", click.IntRange(0), "Of each request.", 0),
    flag("--logprobs", click.IntRange(0), "How many each token comes with."),
    flag("--allowed", click.FloatRange(0, 1), "Share that masks allow.", 1.0),
)
_HOW = (
    flag("--device", str, "cuda or cuda:N; cpu for trying out.", "cuda"),
    flag("--count", _SEVERAL, "Timed calls of each kind.  [default: 60; 10 for --worst]"),
    flag("--sets", _SEVERAL, "Inputs that take turns.  [default: 4; 1 for --worst]"),
    click.option("--check/--no-check", default=True, help="Compare tokens with the reference's."),
    flag("--seconds", float, "Begin no workload later than so.  [default: no limit]"),
    flag("--read", FILE, "Show an earlier run's JSON again."),
    *FILES,
    flag("--plot", FILE, "Draw times over batch sizes."),
)


@click.command()
@with_options(*_ROWS, *_HOW)
def kernels(**options: Any) -> None:
    """Time `verify` against one read of the logits that its rule needs."""
    with errors_in_one_line():
        from . import main  # noqa: PLC0415, imports torch

        main.run(options)
