"""`acceptor bench`, its subcommand `acceptor bench kernels`, and their flags.

What only a run needs is imported when it runs, so help appears at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from attrs import fields_dict, frozen
from click.core import ParameterSource

from ..options import POLICIES, SETTINGS, Name, NamedPath, option, run
from .public_pairs import PAIRS

Options = Mapping[str, Any]


@frozen
class Several(click.ParamType[tuple[Any, ...]]):
    """Values of one kind with commas between them."""

    name = "list"
    _kind: click.ParamType[Any]
    _shown: str = "N"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The name of one value."""
        return f"{self._kind.get_metavar(param, ctx) or self._shown}[,…]"

    def convert(self, value: object, *place: Any) -> tuple[Any, ...]:
        """Each value of the list."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        return tuple(dict.fromkeys(self._kind.convert(part, *place) for part in parts))


def given(options: Options, kind: type[Any]) -> dict[str, Any]:
    """The given options that are fields of a class."""
    return {name: options[name] for name in fields_dict(kind) if options.get(name) is not None}


FILE = NamedPath(path_type=Path, dir_okay=False)
NAMES = Several(click.STRING, "NAME")
INTEGERS = Several(click.INT)
NUMBERS = Several(click.FLOAT, "X")
COUNT = click.IntRange(1)
POSITIVE = click.FloatRange(0, min_open=True)
POLICY_NAMES = Several(Name(POLICIES))


def _preset(context: click.Context, _: click.Parameter, name: str | None) -> str | None:
    """Serve the pair in the published way, as far as flags do not say otherwise."""
    if name is not None:
        context.default_map = {
            "drafter": (PAIRS[name].drafter,),
            "policy": ("strict", "probabilistic", "block"),
            "synthetic_acceptance_rate": PAIRS[name].rates,
            "num_spec_tokens": (3,),
            "max_concurrency": (1, 16),
            "ignore_eos": True,
        }
    return name


MODELS = (
    SETTINGS["models.target"],
    SETTINGS["models.draft"],
    option("--random-weights", FILE, "A target of this config.json's shape.", flag_value=""),
    option("--draft-random-weights", FILE, "A draft of this config.json's shape."),
    option("--target-layers", int, "With random weights: fewer layers than the config has."),
    option("--draft-layers", int, "Layers that draft by early exit.  [default: a quarter]"),
    option(
        "--layer-decay",
        float,
        "Each random layer adds this share of the one before.  [default: 1; early exit: less]",
    ),
    SETTINGS["models.dtype"],
    option("--device", str, "cpu, cuda or cuda:N.", "cpu"),
    option("--max-model-len", int, "A context shorter than the target's own."),
    SETTINGS["models.num_threads"],
    SETTINGS["models.forward"],
)

REQUESTS = (
    option("--prompts", FILE, "JSONL file in the format of MT-Bench or Spec-Bench.", name="file"),
    option("--category", NAMES, "Only prompts of these categories."),
    option("--input-len", int, "Random prompts of this many tokens."),
    option("--output-len", int, "The most tokens per request.", 64),
    option("--length-spread", float, "Vary lengths by this share in both directions.", 0.0),
    option("--greedy-share", float, "The share of requests at temperature 0.", 0.0),
    SETTINGS["decoding.ignore_eos"],
    option("--num-requests", int, "How many requests are measured.", 32),
    option("--seed", int, "Repeat a load.", 0),
)

FILES = (
    option("--json", FILE, "Write all figures.", name="json_file"),
    option("--markdown", FILE, "Write tables for a document.", name="markdown_file"),
)

_BENCH = (
    option(
        "--pair",
        click.Choice(list(PAIRS)),
        "A pair's published settings, for --target and --draft, or --random-weights without FILE.",
        is_eager=True,
        callback=_preset,
    ),
    option("--drafter", Several(Name(".config:DRAFTERS")), "What drafts.  [default: by the draft]"),
    *MODELS,
    option("--policy", POLICY_NAMES, "Which draft tokens survive.  [default: probabilistic]"),
    option("--synthetic-acceptance-rate", NUMBERS, "Add the policy synthetic with this rate."),
    option("--num-spec-tokens", INTEGERS, "Tokens per draft; 0 decodes without drafts.", "4"),
    option("--temperature", NUMBERS, "0 is greedy.", "1.0", name="temperatures"),
    option("--backend", NAMES, "What verifies drafts.", "reference", name="backends"),
    option("--adaptive", FILE, "Also run with an adaptive K, by a file of `acceptor tune --json`."),
    *(SETTINGS[f"sampling.{name}"] for name in ("top_k", "top_p", "min_p")),
    *REQUESTS,
    option("--max-concurrency", INTEGERS, "The most requests at once.", "8"),
    option("--request-rate", float, "Arrivals per second, Poisson.  [default: all at once]"),
    option("--warm-up", int, "Requests before the measured ones.", 2),
    option("--cpu-time", None, "Show processor time only: for a CPU that has other work."),
    *FILES,
    option("--compare", FILE, "An earlier run's JSON to compare with."),
    option("--plots", NamedPath(path_type=Path, file_okay=False), "Draw into this directory."),
)

_OWN_ROWS = (
    option("--spec-tokens", Several(click.IntRange(0, 256)), "K.", "3", name="lengths"),
    option("--vocab-size", Several(click.IntRange(1, 2**24)), "V.", "151936", name="vocab_sizes"),
    option("--dtype", str, "Of both models' logits.", "bfloat16"),
    option("--policy", str, "Repeatable.", ("probabilistic",), name="policies", multiple=True),
    option("--temperature", float, "0 is greedy.", 0.8),
    option("--min-p", float, "Of both models.", 0.0),
    option("--top-k", int, "Of both models.", 0),
    option("--top-p", float, "Of both models.", 1.0),
    option("--repetition-penalty", float, "Of each request.", 1.0),
    option("--history", COUNT, "Tokens that penalties count.", 640, name="num_counted"),
    option("--logit-biases", click.IntRange(0), "Of each request.", 0, name="num_biases"),
    option("--logprobs", click.IntRange(0), "How many logprobs each token gets."),
    option("--allowed", click.FloatRange(0, 1), "The share of tokens that masks allow.", 1.0),
)
_KERNELS = (
    option("--backend", str, "Repeatable.", ("triton", "cupy"), name="backends", multiple=True),
    option("--headline", None, "Measure the rows that backends are compared by."),
    option("--worst", None, "Find the slowest inputs of many rows; can join --headline."),
    option("--only", str, "Only rows whose name contains this. Repeatable.", multiple=True),
    option(
        "--inputs",
        NAMES,
        "lm, zipf, flat, sharp, ties, mixed or bad.  [default: lm; all for --worst]",
        name="kinds",
    ),
    option("--requests", Several(click.IntRange(1, 2**16)), "R.", "1,16,64,256", name="sizes"),
    *_OWN_ROWS,
    option("--device", str, "cuda or cuda:N; cpu for a trial.", "cuda"),
    option("--count", COUNT, "Timed calls of each kind.  [default: 60; 30 for --worst]"),
    option("--sets", COUNT, "Input sets in turn.  [default: 4; 1 for --worst]", name="num_sets"),
    click.Option(["--check/--no-check"], default=True, help="Compare tokens with the reference's."),
    option("--seconds", POSITIVE, "Begin no workload after this time.  [default: no limit]"),
    option("--read", FILE, "Show an earlier run's JSON again."),
    *FILES,
    option("--plot", FILE, "Draw times over batch sizes."),
)


def _refuse_unread(options: Options) -> None:
    """Refuse flags of rows that are not measured, and a history that no penalty counts."""
    chosen = [flag for flag in ("headline", "worst", "read") if options[flag]]
    source = click.get_current_context().get_parameter_source
    for one in _OWN_ROWS if chosen else ():
        if source(str(one.name)) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{one.opts[0]}: expected none beside --{chosen[0]}, got one")
    if source("num_counted") is ParameterSource.COMMANDLINE and options["repetition_penalty"] == 1:
        raise click.UsageError("--history: expected --repetition-penalty beside it, got none")


@click.command(params=[*_KERNELS])
def kernels(**options: Any) -> None:
    """Time `verify` against one read of the logits that its rule needs."""
    _refuse_unread(options)
    run(".bench.kernels.main:run", options)


@click.group(commands=[kernels], invoke_without_command=True, params=[*_BENCH])
@click.pass_context
def bench(context: click.Context, /, **options: Any) -> None:
    """Serve requests and measure throughput, latency and acceptance.

    Policies, K, drafters, temperatures, backends and concurrencies take lists with commas; every
    combination is run with the same requests.
    """
    if context.invoked_subcommand is None:
        run(".bench.main:run", options)
