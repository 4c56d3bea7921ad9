"""`acceptor bench kernels`: what it takes, and where its output goes.

PyTorch is imported when the command runs, so that help appears at once.
"""

from pathlib import Path
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
        "inputs",
        NAMES,
        "Of lm, zipf, flat, sharp, ties, mixed and bad.  [default: lm; all for --worst]",
    ),
    flag("--requests", "requests", _between(1, 2**16), "R.", "1,16,64,256"),
    flag("--spec-tokens", "spec_tokens", _between(0, 256), "K.", "3"),
    flag("--vocab-size", "vocab_size", _between(1, 2**24), "V.", "151936"),
    flag("--dtype", "dtype", str, "Of both models' logits.", "bfloat16"),
    click.option(
        "--policy",
        "policies",
        multiple=True,
        default=("probabilistic",),
        show_default=True,
        help="Repeatable.",
    ),
    flag("--temperature", "temperature", float, "0 is greedy.", 0.8),
    flag("--min-p", "min_p", float, "Of both models.", 0.0),
    flag("--top-k", "top_k", int, "Of both models.", 0),
    flag("--top-p", "top_p", float, "Of both models.", 1.0),
    flag("--repetition-penalty", "repetition_penalty", float, "Of each request.", 1.0),
    flag("--logit-biases", "logit_biases", click.IntRange(0), "Of each request.", 0),
    flag("--logprobs", "logprobs", click.IntRange(0), "How many each token comes with."),
    flag("--allowed", "allowed", click.FloatRange(0, 1), "Share that masks allow.", 1.0),
)
_HOW = (
    flag("--device", "device", str, "cuda or cuda:N; cpu for trying out.", "cuda"),
    flag("--count", "count", _SEVERAL, "Timed calls of each kind.  [default: 60; 10 for --worst]"),
    flag("--sets", "sets", _SEVERAL, "Inputs that take turns.  [default: 4; 1 for --worst]"),
    click.option("--check/--no-check", default=True, help="Compare tokens with the reference's."),
    flag("--seconds", "seconds", float, "Begin no workload later than so.  [default: no limit]"),
    flag("--read", "read", FILE, "Show an earlier run's JSON again."),
    *FILES,
    flag("--plot", "plot_file", FILE, "Draw times over batch sizes."),
)


@click.command()
@with_options(*_ROWS, *_HOW)
def kernels(
    read: Path | None,
    json_file: Path | None,
    markdown_file: Path | None,
    plot_file: Path | None,
    **options: Any,
) -> None:
    """Time `verify` against one read of the logits that its rule needs."""
    with errors_in_one_line():
        from ..files import make_room  # noqa: PLC0415, imports torch
        from ..picture import need_matplotlib  # noqa: PLC0415, imports torch
        from . import main  # noqa: PLC0415, imports torch

        for path in (json_file, markdown_file, plot_file):
            make_room(path)
        if plot_file is not None:
            need_matplotlib("--plot")
        run = main.reread(read) if read is not None else main.run(options)
        main.show(run)
        main.write(run, json_file, markdown_file, plot_file)
