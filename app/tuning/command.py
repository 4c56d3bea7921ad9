"""`acceptor tune`. What only a run needs is imported when it runs."""

from pathlib import Path
from typing import Any

import click

from ..bench.options import INTEGERS, MODELS, NAMES, NUMBERS, REQUESTS, with_options

_FILE = click.Path(path_type=Path, dir_okay=False)
_CHOICES = (
    click.option(
        "--policy",
        "policies",
        type=NAMES,
        help="To choose from.  [default: probabilistic,block]",
    ),
    click.option(
        "--synthetic-acceptance-rate",
        "synthetic_rates",
        type=NUMBERS,
        help="Accept drafts of the largest K at this rate whatever the models say: a policy more.",
    ),
    click.option(
        "--num-spec-tokens",
        type=INTEGERS,
        default="0,1,2,4,8",
        show_default=True,
        help="Each K that is measured; all up to the largest are predicted.",
    ),
    click.option(
        "--concurrency",
        "concurrencies",
        type=INTEGERS,
        default="1,4",
        show_default=True,
        help="Requests under way at once, each number measured.",
    ),
    click.option(
        "--predict-concurrency",
        "predicted",
        type=INTEGERS,
        help="Predicted, too, from those that are measured.",
    ),
    click.option("--temperature", type=float, default=1.0, show_default=True, help="0 is greedy."),
    click.option("--backend", default="reference", show_default=True, help="What verifies."),
    click.option(
        "--steps",
        "num_steps",
        type=click.IntRange(10),
        default=200,
        show_default=True,
        help="Measured per concurrency.",
    ),
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
    click.option("--json", "json_file", type=_FILE, help="Write all figures."),
    click.option("--markdown", "markdown_file", type=_FILE, help="Write tables for a document."),
    click.option("--curve", type=_FILE, help="Draw tokens per second against K."),
)


@click.command()
@with_options(MODELS, _CHOICES, REQUESTS, _OUTPUT)
def tune(**options: Any) -> None:
    """Choose K and policy: measure one run, predict tokens per second, recommend."""
    from ...core.errors import AcceptorError  # noqa: PLC0415, imports torch
    from . import main  # noqa: PLC0415, imports torch

    try:
        main.run(options)
    except AcceptorError as error:
        raise click.UsageError(str(error)) from None
