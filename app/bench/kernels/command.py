"""`acceptor bench kernels`: what it takes, and where its output goes.

PyTorch is imported when the command runs, so that help appears at once.
"""

from pathlib import Path
from typing import Any

import click

_NUMBERS = "a number, or several with commas"
_INPUTS = "lm, zipf, flat, sharp, ties, mixed"


def _words(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _integers(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise click.BadParameter(
            f"expected integers with commas between them, got {text}"
        ) from None


@click.command()
@click.option(
    "--backend",
    "backends",
    multiple=True,
    default=("triton", "cupy"),
    show_default=True,
    help="Repeatable.",
)
@click.option("--headline", is_flag=True, help="The rows that backends are compared by.")
@click.option(
    "--worst",
    is_flag=True,
    help="Many rows with every kind of inputs, and which is slowest; by itself or with --headline.",
)
@click.option("--only", multiple=True, help="Rows whose name contains this. Repeatable.")
@click.option(
    "--inputs",
    default="",
    callback=_words,
    help=f"One of {_INPUTS}, or several with commas.  [default: lm; all for --worst]",
)
@click.option(
    "--requests",
    default="",
    callback=_integers,
    help=f"R: {_NUMBERS}.  [default: 1,16,64,256; 2, too, for --worst]",
)
@click.option("--spec-tokens", default="3", callback=_integers, help=f"K: {_NUMBERS}.")
@click.option("--vocab-size", default="151936", callback=_integers, help=f"V: {_NUMBERS}.")
@click.option("--dtype", default="bfloat16", show_default=True, help="Of both models' logits.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("probabilistic",),
    show_default=True,
    help="Repeatable.",
)
@click.option("--temperature", type=float, default=0.8, show_default=True)
@click.option("--min-p", type=float, default=0.0)
@click.option("--top-k", type=int, default=0)
@click.option("--top-p", type=float, default=1.0)
@click.option("--repetition-penalty", type=float, default=1.0)
@click.option("--logit-biases", type=click.IntRange(0), default=0, help="Of each request.")
@click.option("--logprobs", type=click.IntRange(0), help="How many each token comes with.")
@click.option("--device", default="cuda", show_default=True)
@click.option(
    "--count",
    type=click.IntRange(1),
    help="Timed calls of each kind.  [default: 60; 10 for --worst]",
)
@click.option(
    "--sets",
    type=click.IntRange(1),
    help="Fresh inputs that take turns.  [default: 4; 1 for --worst]",
)
@click.option("--check/--no-check", default=True, help="Compare tokens with the reference's.")
@click.option("--read", type=click.Path(path_type=Path), help="Show an earlier run's JSON again.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write raw figures.")
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path), help="Write tables.")
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), help="Write a figure.")
def kernels(
    read: Path | None,
    json_file: Path | None,
    markdown_file: Path | None,
    plot_file: Path | None,
    **options: Any,
) -> None:
    """Time `verify` against one read of the logits that its rule needs."""
    from ....core.errors import AcceptorError  # noqa: PLC0415, imports torch
    from . import main  # noqa: PLC0415, imports torch

    try:
        run = main.reread(read) if read is not None else main.run(options)
        main.show(run)
        main.write(run, json_file, markdown_file, plot_file)
    except AcceptorError as error:
        raise click.UsageError(str(error)) from None
