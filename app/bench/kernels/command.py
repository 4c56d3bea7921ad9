"""`acceptor bench kernels`. Imports that only a run needs happen when it runs."""

from typing import Any

import click

from ...options import option, run
from ..options import FILE, FILES, NAMES, Several

_SEVERAL = click.IntRange(1)


def _between(low: int, high: int) -> Several:
    return Several(click.IntRange(low, high), "N")


_ROWS = (
    option("--backend", str, "Repeatable.", ("triton", "cupy"), name="backends", multiple=True),
    option("--headline", None, "Measure the rows that backends are compared by."),
    option(
        "--worst",
        None,
        "Measure many rows with every kind of inputs, to find the slowest; can join --headline.",
    ),
    option("--only", str, "Only rows whose name contains this. Repeatable.", multiple=True),
    option(
        "--inputs",
        NAMES,
        "lm, zipf, flat, sharp, ties, mixed or bad.  [default: lm; all for --worst]",
    ),
    option("--requests", _between(1, 2**16), "R.", "1,16,64,256"),
    option("--spec-tokens", _between(0, 256), "K.", "3"),
    option("--vocab-size", _between(1, 2**24), "V.", "151936"),
    option("--dtype", str, "Of both models' logits.", "bfloat16"),
    option("--policy", str, "Repeatable.", ("probabilistic",), name="policies", multiple=True),
    option("--temperature", float, "0 is greedy.", 0.8),
    option("--min-p", float, "Of both models.", 0.0),
    option("--top-k", int, "Of both models.", 0),
    option("--top-p", float, "Of both models.", 1.0),
    option("--repetition-penalty", float, "Of each request.", 1.0),
    option("--logit-biases", click.IntRange(0), "Of each request.", 0),
    option("--logprobs", click.IntRange(0), "How many logprobs each token gets."),
    option("--allowed", click.FloatRange(0, 1), "The share of tokens that masks allow.", 1.0),
)
_HOW = (
    option("--device", str, "cuda or cuda:N; cpu for a trial.", "cuda"),
    option("--count", _SEVERAL, "Timed calls of each kind.  [default: 60; 30 for --worst]"),
    option(
        "--sets",
        _SEVERAL,
        "Sets of inputs that take turns.  [default: 4; 1 for --worst]",
        name="num_sets",
    ),
    click.Option(["--check/--no-check"], default=True, help="Compare tokens with the reference's."),
    option("--seconds", float, "Begin no workload after this time.  [default: no limit]"),
    option("--read", FILE, "Show an earlier run's JSON again."),
    *FILES,
    option("--plot", FILE, "Draw times over batch sizes."),
)


@click.command(params=[*_ROWS, *_HOW])
def kernels(**options: Any) -> None:
    """Time `verify` against one read of the logits that its rule needs."""
    run(".bench.kernels.main:run", options)
