"""The flags of `acceptor bench`. What only a run needs is not imported here."""

from pathlib import Path
from typing import Any

import click

from ..options import OPTIONS, POLICIES, Decorator, Name, flag
from .public_pairs import PAIRS


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


FILE = click.Path(path_type=Path, dir_okay=False)
_DIRECTORY = click.Path(path_type=Path, file_okay=False)
NAMES = Several(click.STRING, "NAME")
INTEGERS = Several(click.INT, "N")
NUMBERS = Several(click.FLOAT, "X")
POLICY_NAMES = Several(Name(POLICIES))


def same(flag: str, name: str, default: Any = None) -> Decorator:
    """A flag of `acceptor generate`, whose value goes by this name."""
    return {option.flag: option for option in OPTIONS}[flag].given_as(name, default)


def _preset(context: click.Context, _: click.Parameter, name: str | None) -> str | None:
    """What is not given is the pair's."""
    if name is not None:
        context.default_map = dict(PAIRS[name].preset)
    return name


PAIR = click.option(
    "--pair",
    type=click.Choice(list(PAIRS)),
    is_eager=True,
    callback=_preset,
    help="Models that others have measured, as they were served: with --target and --draft, or "
    "with --random-weights, which then needs no FILE.",
)

_NAMES_OF_DRAFTERS = Several(Name(".config:DRAFTERS"))
DRAFTER = same("--drafter", "drafter")
DRAFTERS = flag(
    "--drafter", "drafters", _NAMES_OF_DRAFTERS, "Where drafts come from.  [default: the draft]"
)

MODELS = (
    same("--target", "target"),
    same("--draft", "draft"),
    click.option(
        "--random-weights",
        type=FILE,
        is_flag=False,
        flag_value="",
        help="A target of a config.json's shape.",
    ),
    flag("--draft-random-weights", "draft_random_weights", FILE, "A draft of the same kind."),
    flag("--target-layers", "target_layers", int, "Of random weights: fewer than the config has."),
    flag("--draft-layers", "draft_layers", int, "For an early exit.  [default: a quarter]"),
    flag(
        "--layer-decay",
        "layer_decay",
        float,
        "Of random weights: each layer adds so much of what the one before adds.  "
        "[default: 1; less for an early exit]",
    ),
    same("--dtype", "dtype"),
    same("--device", "device", "cpu"),
    flag("--max-model-len", "max_model_len", int, "A context shorter than the target's own."),
    same("--threads", "num_threads"),
    same("--forward", "forward"),
)

SWEEP = (
    flag(
        "--policy",
        "policies",
        POLICY_NAMES,
        "Which draft tokens survive; synthetic ones by their rate.  [default: probabilistic]",
    ),
    flag(
        "--synthetic-acceptance-rate",
        "synthetic_rates",
        NUMBERS,
        "Accept at this rate whatever the models say: a policy more.",
    ),
    flag(
        "--num-spec-tokens",
        "num_spec_tokens",
        INTEGERS,
        "Tokens per draft; 0 decodes plainly.",
        "4",
    ),
    flag("--temperature", "temperatures", NUMBERS, "0 is greedy.", "1.0"),
    flag("--backend", "backends", NAMES, "What verifies.", "reference"),
    flag(
        "--adaptive",
        "tuned",
        FILE,
        "Run with an adaptive K, too, by what `acceptor tune --json` wrote.",
    ),
    same("--top-k", "top_k"),
    same("--top-p", "top_p"),
    same("--min-p", "min_p"),
)

REQUESTS = (
    flag("--prompts", "file", FILE, "JSONL: MT-Bench's or Spec-Bench's format."),
    flag("--category", "categories", NAMES, "Of the prompts, only these."),
    flag("--input-len", "input_len", int, "Random prompts of so many tokens."),
    flag("--output-len", "output_len", int, "Tokens per request, at most.", 64),
    flag(
        "--length-spread",
        "length_spread",
        float,
        "Vary lengths by this share in both directions.",
        0.0,
    ),
    flag(
        "--greedy-share",
        "greedy_share",
        float,
        "Of the requests, those at temperature 0 whatever the setting.",
        0.0,
    ),
    same("--ignore-eos", "ignore_eos"),
    flag("--num-requests", "num_requests", int, "How many are measured.", 32),
    flag("--seed", "seed", int, "Repeats a load.", 0),
)

ARRIVALS = (
    flag("--max-concurrency", "at_once", INTEGERS, "Requests running at once, at most.", "8"),
    flag("--request-rate", "request_rate", float, "Per second, Poisson.  [default: all at once]"),
    flag("--warm-up", "warm_up", int, "Requests before what counts.", 2),
)

FILES = (
    flag("--json", "json_file", FILE, "Write all figures."),
    flag("--markdown", "markdown_file", FILE, "Write tables for a document."),
)
OUTPUT = (
    click.option(
        "--cpu-time",
        is_flag=True,
        help="Show processor time and nothing by the wall's clock: for a CPU that has other work.",
    ),
    *FILES,
    flag("--compare", "compare", FILE, "An earlier run's JSON to compare with."),
    flag("--plots", "plots", _DIRECTORY, "Draw pictures into this directory."),
)
