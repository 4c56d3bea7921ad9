"""The flags of `acceptor generate` and the settings they stand for.

Nothing here imports torch before it is needed, so that help appears at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from attrs import frozen

Command = TypeVar("Command", bound=Callable[..., Any])


class Name(click.ParamType[str]):
    """One of several names, looked up only when help is printed; the config checks it."""

    name = "name"

    def __init__(
        self, names: Callable[[], Iterable[str]], note: Callable[[], str] = lambda: ""
    ) -> None:
        self._names = names
        self._note = note

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """The names, as a choice, and a note."""
        return f"[{'|'.join(self._names())}{self._note()}]"


def _backends() -> Iterable[str]:
    from ..backends import BACKENDS  # noqa: PLC0415, imports torch

    return BACKENDS


def policies() -> Iterable[str]:
    """The policies' names."""
    from ..core.policies import POLICIES  # noqa: PLC0415, imports torch

    return POLICIES


def lossy_policies() -> str:
    """Names of those that change the target's law, as a note."""
    from ..core.policies import POLICIES  # noqa: PLC0415, imports torch

    return "; lossy: " + ", ".join(p.name for p in POLICIES.values() if not p.lossless)


def _drafters() -> Iterable[str]:
    from .config import DRAFTERS  # noqa: PLC0415, imports torch

    return DRAFTERS


def _forwards() -> Iterable[str]:
    from ..adapters.forward_choice import FORWARDS  # noqa: PLC0415, imports torch

    return FORWARDS


def _adapters() -> Iterable[str]:
    from ..adapters.adapter_choice import ADAPTERS  # noqa: PLC0415, imports torch

    return ADAPTERS


@frozen
class Option:
    """One flag.

    Attributes:
        flag: as typed.
        path: the setting it stands for.
        type: of its value; None for a flag without a value.
        help: one line.
        multiple: whether it may be given several times.
    """

    flag: str
    path: str
    type: Any
    help: str
    multiple: bool = False

    @property
    def parameter(self) -> str:
        """What click calls its value."""
        return self.flag.removeprefix("--").replace("-", "_")


OPTIONS = (
    Option("--target", "models.target", str, "Target: directory or hub id.  [default: bundled]"),
    Option("--draft", "models.draft", str, "Draft: directory or hub id.  [default: bundled]"),
    Option("--dtype", "models.dtype", str, "float32, bfloat16 or float16."),
    Option("--device", "models.device", str, "cpu, cuda or cuda:N.  [default: cpu]"),
    Option("--threads", "models.num_threads", int, "CPU threads.  [default: by the target's size]"),
    Option("--forward", "models.forward", Name(_forwards), "What computes.  [default: auto]"),
    Option(
        "--model-adapter", "models.adapter", Name(_adapters), "Whose model code.  [default: auto]"
    ),
    Option("--backend", "backend", Name(_backends), "What verifies.  [default: reference]"),
    Option(
        "--policy",
        "policy.name",
        Name(policies, lossy_policies),
        "Which draft tokens survive.  [default: probabilistic]",
    ),
    Option(
        "--synthetic-acceptance-rate",
        "policy.acceptance_rate",
        float,
        "Accept at this rate whatever the models say; the policy is then synthetic.",
    ),
    Option(
        "--drafter",
        "drafter.name",
        Name(_drafters),
        "Where drafts come from.  [default: model, if there is one]",
    ),
    Option(
        "--num-spec-tokens",
        "decoding.num_spec_tokens",
        int,
        "Tokens per draft; 0 decodes plainly.  [default: 4]",
    ),
    Option("--temperature", "sampling.temperature", float, "0 is greedy.  [default: 1.0]"),
    Option("--top-k", "sampling.top_k", int, "Keep the k most likely tokens."),
    Option("--top-p", "sampling.top_p", float, "Keep the most likely tokens with this mass."),
    Option("--min-p", "sampling.min_p", float, "Keep tokens at least this likely, relatively."),
    Option("--seed", "sampling.seed", int, "Repeats a result.  [default: random, reported]"),
    Option("--max-tokens", "decoding.max_tokens", int, "Emit at most so many.  [default: 128]"),
    Option("--stop", "decoding.stop", str, "End before this text; may be repeated.", multiple=True),
    Option("--ignore-eos", "decoding.ignore_eos", None, "Go on after an end-of-text token."),
    Option("--chat", "decoding.chat", None, "Put the prompt through the chat template."),
)


@contextmanager
def errors_in_one_line(*, debug: bool = False) -> Iterator[None]:
    """Turn what the application refuses into click's error, unless its place is wanted."""
    from ..core.errors import AcceptorError  # noqa: PLC0415, imports torch

    try:
        yield
    except AcceptorError as error:
        if debug:
            raise
        raise click.UsageError(str(error)) from None


def setting_options(command: Command) -> Command:
    """Give a command all of `OPTIONS`."""
    for option in reversed(OPTIONS):
        command = click.option(
            option.flag,
            type=option.type,
            is_flag=option.type is None,
            default=None,
            multiple=option.multiple,
            help=option.help,
        )(command)
    return command


@frozen
class Flag:
    """A setting from the command line.

    Attributes:
        name: as typed, with its dashes.
        path: the setting, such as `sampling.temperature`.
        value: what it is set to.
    """

    name: str
    path: str
    value: object


def given(values: Mapping[str, Any]) -> list[Flag]:
    """The options that were typed, with their values."""
    return [
        Flag(option.flag, option.path, values[option.parameter])
        for option in OPTIONS
        if values[option.parameter] not in (None, ())
    ]
