"""`acceptor tune`. What only a run needs is imported when it runs."""

from typing import Any

import click

from ..bench.options import DRAFTER, FILE, FILES, INTEGERS, MODELS, NUMBERS, POLICY_NAMES, REQUESTS
from ..options import errors_in_one_line, flag, with_options

_CHOICES = (
    flag(
        "--policy", POLICY_NAMES, "To choose from.  [default: probabilistic,block]", name="policies"
    ),
    flag(
        "--synthetic-acceptance-rate",
        NUMBERS,
        "Accept drafts of the largest K at this rate whatever the models say: a policy more.",
        name="synthetic_rates",
    ),
    flag(
        "--num-spec-tokens",
        INTEGERS,
        "Each K that is measured; all up to the largest are predicted.",
        "0,1,2,4,8",
    ),
    flag(
        "--concurrency",
        INTEGERS,
        "Requests running at once, measured.",
        "1,4",
    ),
    flag(
        "--predict-concurrency",
        INTEGERS,
        "Predicted, too, from the measured ones.",
    ),
    flag("--temperature", float, "0 is greedy.", 1.0),
    flag("--backend", str, "What verifies.", "reference"),
    flag("--steps", click.IntRange(10), "Measured per concurrency.", 200),
)
_OUTPUT = (
    click.option(
        "--cpu-time",
        is_flag=True,
        help="Count processor time: for a CPU that has other work, too.",
    ),
    click.option(
        "--check",
        is_flag=True,
        help="Run what is predicted at each measured K and at one that is not, and compare.",
    ),
    *FILES,
    flag("--curve", FILE, "Draw tokens per second against K."),
)


@click.command()
@with_options(DRAFTER, *MODELS, *_CHOICES, *REQUESTS, *_OUTPUT)
def tune(**options: Any) -> None:
    """Choose K and policy: measure one run, predict tokens per second, recommend."""
    with errors_in_one_line():
        from . import main  # noqa: PLC0415, imports torch

        main.run(options)
