"""The flags of `acceptor bench`. What only a run needs is not imported here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..options import Name, policies

Command = TypeVar("Command", bound=Callable[..., Any])


class Several(click.ParamType[tuple[Any, ...]]):
    """Values of one kind with commas between them."""

    name = "list"

    def __init__(self, kind: click.ParamType[Any], shown: str = "") -> None:
        self._kind = kind
        self._shown = shown

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The name of one value."""
        return f"{self._kind.get_metavar(param, ctx) or self._shown}[,…]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Each value of the list."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        return tuple(dict.fromkeys(self._kind.convert(part, param, ctx) for part in parts))


_FILE = click.Path(path_type=Path, dir_okay=False)
_DIRECTORY = click.Path(path_type=Path, file_okay=False)
NAMES = Several(click.STRING, "NAME")
INTEGERS = Several(click.INT, "N")
NUMBERS = Several(click.FLOAT, "X")

MODELS = (
    click.option("--target", help="Target: directory or hub id.  [default: bundled]"),
    click.option("--draft", help="Draft: directory or hub id.  [default: bundled]"),
    click.option("--random-weights", type=_FILE, help="A target of a config.json's shape."),
    click.option("--draft-random-weights", type=_FILE, help="A draft of the same kind."),
    click.option(
        "--drafter", help="model, ngram or early-exit.  [default: model, if there is a draft]"
    ),
    click.option(
        "--draft-layers", type=int, help="Of the target, for an early exit.  [default: a quarter]"
    ),
    click.option(
        "--layer-decay",
        type=float,
        help="Of random weights: each layer adds so much of what the one before adds.  "
        "[default: 1; less for an early exit]",
    ),
    click.option("--dtype", help="float32, bfloat16 or float16."),
    click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N."),
    click.option("--max-model-len", type=int, help="A context shorter than the target's own."),
    click.option("--forward", help="auto, triton or torch.  [default: auto]"),
    click.option("--threads", "num_threads", type=int, help="CPU threads."),
)

SWEEP = (
    click.option(
        "--policy",
        "policies",
        type=Several(Name(policies)),
        help="Which draft tokens survive; synthetic ones by their rate.  [default: probabilistic]",
    ),
    click.option(
        "--synthetic-acceptance-rate",
        "synthetic_rates",
        type=NUMBERS,
        help="Accept at this rate whatever the models say: a policy more.",
    ),
    click.option(
        "--num-spec-tokens",
        type=INTEGERS,
        default="4",
        show_default=True,
        help="Tokens per draft; 0 decodes plainly.",
    ),
    click.option(
        "--temperature",
        "temperatures",
        type=NUMBERS,
        default="1.0",
        show_default=True,
        help="0 is greedy.",
    ),
    click.option(
        "--backend",
        "backends",
        type=NAMES,
        default="reference",
        show_default=True,
        help="What verifies.",
    ),
    click.option(
        "--adaptive",
        "tuned",
        type=_FILE,
        help="Run with an adaptive K, too, by what `acceptor tune --json` wrote.",
    ),
    click.option("--top-k", type=int, help="Keep the k most likely tokens."),
    click.option("--top-p", type=float, help="Keep the most likely tokens with this mass."),
    click.option("--min-p", type=float, help="Keep tokens at least this likely, relatively."),
)

REQUESTS = (
    click.option("--prompts", "file", type=_FILE, help="JSONL: MT-Bench's or Spec-Bench's format."),
    click.option("--category", "categories", type=NAMES, help="Of the prompts, only these."),
    click.option("--input-len", type=int, help="Random prompts of so many tokens."),
    click.option(
        "--output-len", type=int, default=64, show_default=True, help="Tokens per request, at most."
    ),
    click.option(
        "--length-spread",
        type=float,
        default=0.0,
        show_default=True,
        help="Vary lengths by this share in both directions.",
    ),
    click.option(
        "--greedy-share",
        type=float,
        default=0.0,
        show_default=True,
        help="Of the requests, those at temperature 0 whatever the setting.",
    ),
    click.option("--ignore-eos", is_flag=True, help="Go on after an end-of-text token."),
    click.option(
        "--num-requests", type=int, default=32, show_default=True, help="How many are measured."
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Repeats a load."),
)

ARRIVALS = (
    click.option(
        "--max-concurrency",
        type=int,
        default=8,
        show_default=True,
        help="Requests under way at once, at most.",
    ),
    click.option(
        "--request-rate", type=float, help="Mean arrivals per second, Poisson.  [default: at once]"
    ),
    click.option(
        "--warm-up", type=int, default=2, show_default=True, help="Requests before what counts."
    ),
)

CPU_TIME = click.option(
    "--cpu-time",
    is_flag=True,
    help="Show processor time and nothing by the wall's clock: for a CPU that has other work.",
)
OUTPUT = (
    CPU_TIME,
    click.option("--json", "json_file", type=_FILE, help="Write all figures."),
    click.option("--markdown", "markdown_file", type=_FILE, help="Write tables for a document."),
    click.option("--compare", type=_FILE, help="An earlier run's JSON to compare with."),
    click.option("--plots", type=_DIRECTORY, help="Draw pictures into this directory."),
)


def with_options(*groups: tuple[Callable[[Command], Command], ...]) -> Callable[[Command], Command]:
    """Give a command all options of these groups, in their order."""

    def give(command: Command) -> Command:
        for option in (option for group in reversed(groups) for option in reversed(group)):
            command = option(command)
        return command

    return give
