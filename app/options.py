"""The flags of commands, and the settings that those of `acceptor generate` stand for.

Nothing here imports torch before it is needed, so that help appears at once.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
from attrs import frozen

Decorator = Callable[[Any], Any]


class Name(click.ParamType[str]):
    """One of several names, looked up only when help is printed; the config checks it.

    Args:
        place: of the names, `module:attribute`, the module as seen from this package.
        note: told the names, what help says behind them.
    """

    name = "name"

    def __init__(self, place: str, note: Callable[[Any], str] = lambda _: "") -> None:
        self._place = place
        self._note = note

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """The names, as a choice, and a note."""
        module, _, attribute = self._place.partition(":")
        names: Collection[str] = getattr(import_module(module, __package__), attribute)
        return f"[{'|'.join(names)}{self._note(names)}]"


POLICIES = "..core.policies:POLICIES"


def _lossy(policies: Mapping[str, Any]) -> str:
    """Names of those that change the target's law."""
    return "; lossy: " + ", ".join(name for name, one in policies.items() if not one.lossless)


def flag(flag: str, kind: Any, help: str, default: Any = None, name: str = "") -> Decorator:  # noqa: A002, as click calls it
    """A flag with a value, which goes by the flag's name or by this one; help shows its default."""
    names, shown = (flag, name) if name else (flag,), default is not None
    return click.option(*names, type=kind, help=help, default=default, show_default=shown)


@frozen
class Option:
    """A flag that stands for a setting.

    Attributes:
        flag: as typed.
        path: the setting, such as `sampling.temperature`.
        type: of its value; None for a flag without a value.
        multiple: whether it may be given several times.
    """

    flag: str
    path: str
    type: Any
    help: str
    multiple: bool = False

    @property
    def name(self) -> str:
        """What click calls its value."""
        return self.path.replace(".", "__")

    def given_as(self, *name: str, default: Any = None) -> Decorator:
        """Give a command this flag, whose value goes by the flag's name or by this one."""
        return click.option(
            self.flag,
            *name,
            type=self.type,
            is_flag=self.type is None,
            default=default,
            multiple=self.multiple,
            help=self.help,
        )


OPTIONS = (
    Option("--target", "models.target", str, "Target: directory or hub id.  [default: bundled]"),
    Option("--draft", "models.draft", str, "Draft: directory or hub id.  [default: bundled]"),
    Option("--dtype", "models.dtype", str, "float32, bfloat16 or float16."),
    Option("--device", "models.device", str, "cpu, cuda or cuda:N.  [default: cpu]"),
    Option("--threads", "models.num_threads", int, "CPU threads.  [default: by the target's size]"),
    Option(
        "--forward",
        "models.forward",
        Name("..adapters.forward_choice:FORWARDS"),
        "What computes.  [default: auto]",
    ),
    Option(
        "--model-adapter",
        "models.adapter",
        Name("..adapters.adapter_choice:ADAPTERS"),
        "Whose model code.  [default: auto]",
    ),
    Option(
        "--backend", "backend", Name("..backends:BACKENDS"), "What verifies.  [default: reference]"
    ),
    Option(
        "--policy",
        "policy.name",
        Name(POLICIES, _lossy),
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
        Name(".config:DRAFTERS"),
        "Where drafts come from.  [default: as the draft's files say]",
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
    Option("--json-schema", "decoding.json_schema", str, "Emit JSON of this file's schema."),
    Option("--regex", "decoding.regex", str, "Emit what this regular expression matches."),
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


def with_options(*options: Decorator) -> Decorator:
    """Give a command these options, in their order."""

    def give(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return give


SETTINGS = tuple(option.given_as(option.name) for option in OPTIONS)
"""A flag for each of `OPTIONS`."""


def given(values: Mapping[str, Any]) -> dict[str, object]:
    """The settings that were typed: path -> value."""
    return {
        option.path: values[option.name]
        for option in OPTIONS
        if values[option.name] not in (None, ())
    }
