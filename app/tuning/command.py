"""`acceptor tune`. Imports that only a run needs happen when it runs."""

from typing import Any

import click

from ..bench.command import FILE, FILES, INTEGERS, MODELS, NUMBERS, POLICY_NAMES, REQUESTS
from ..options import SETTINGS, option, run

_TUNE = (
    SETTINGS["drafter.name"],
    *MODELS,
    option("--policy", POLICY_NAMES, "The choices.  [default: probabilistic,block]"),
    option(
        "--synthetic-acceptance-rate",
        NUMBERS,
        "Add the policy synthetic with this rate for drafts of the largest K.",
    ),
    option(
        "--num-spec-tokens",
        INTEGERS,
        "Each K to measure; all up to the largest are predicted.",
        "0,1,2,4,8",
    ),
    option("--concurrency", INTEGERS, "How many requests at once, to measure.", "1,4"),
    option("--predict-concurrency", INTEGERS, "Concurrencies to predict from the measured ones."),
    option("--temperature", float, "0 is greedy.", 1.0),
    option("--backend", str, "What verifies.", "reference"),
    option("--steps", click.IntRange(10), "Measured per concurrency.", 200, name="num_steps"),
    *REQUESTS,
    option("--cpu-time", None, "Count processor time: for a CPU that has other work."),
    option(
        "--check",
        None,
        "Run predicted choices at each measured K and at one other, and compare.",
    ),
    *FILES,
    option("--curve", FILE, "Draw tokens per second against K."),
)


@click.command(params=[*_TUNE])
def tune(**options: Any) -> None:
    """Measure one run, predict speeds, and recommend policy and K."""
    run(".tuning.tuner:run", options)
