"""The flags of commands, and the settings that the flags of `acceptor generate` stand for.

Nothing here imports torch before a command needs it, so help appears at once.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click


class Name(click.ParamType[str]):
    """One of several names, looked up only when help is printed; the config checks the value.

    `module:attribute` holds the names, the module relative to this package.
    """

    name = "name"

    def __init__(self, place: str, note: Callable[[Any], str] = lambda _: "") -> None:
        self._place = place
        self._note = note

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """The names as a choice, and a note."""
        module, _, attribute = self._place.partition(":")
        names: Collection[str] = getattr(import_module(module, __package__), attribute)
        return f"[{'|'.join(names)}{self._note(names)}]"


POLICIES = "..core.policies:POLICIES"


def _lossy(policies: Mapping[str, Any]) -> str:
    """The names of policies that change the target's law."""
    return "; lossy: " + ", ".join(name for name, one in policies.items() if not one.lossless)


def option(
    flag: str,
    kind: Any,
    help: str,  # noqa: A002, as click calls it
    default: Any = None,
    name: str | None = None,
    **more: Any,
) -> click.Option:
    """An option; without a type it is a switch. Help shows its default, if it has one."""
    return click.Option(
        [flag] if name is None else [flag, name],
        type=kind,
        is_flag=kind is None,
        default=False if kind is None else default,
        show_default=default is not None,
        help=help,
        **more,
    )


def setting(flag: str, path: str, kind: Any, help: str, **more: Any) -> click.Option:  # noqa: A002
    """An option that stands for a setting, such as `sampling.temperature`."""
    return option(flag, kind, help, name=path.replace(".", "__"), **more)


SETTINGS = (
    setting("--target", "models.target", str, "Target: directory or hub id.  [default: bundled]"),
    setting("--draft", "models.draft", str, "Draft: directory or hub id.  [default: bundled]"),
    setting("--dtype", "models.dtype", str, "float32, bfloat16 or float16."),
    setting("--device", "models.device", str, "cpu, cuda or cuda:N.  [default: cpu]"),
    setting(
        "--threads", "models.num_threads", int, "CPU threads.  [default: by the target's size]"
    ),
    setting(
        "--forward",
        "models.forward",
        Name("..adapters.forward_choice:FORWARDS"),
        "What computes.  [default: auto]",
    ),
    setting(
        "--model-adapter",
        "models.adapter",
        Name("..adapters.loader:ADAPTERS"),
        "Whose model code.  [default: auto]",
    ),
    setting(
        "--backend", "backend", Name("..backends:BACKENDS"), "What verifies.  [default: reference]"
    ),
    setting(
        "--policy",
        "policy.name",
        Name(POLICIES, _lossy),
        "Which draft tokens survive.  [default: probabilistic]",
    ),
    setting(
        "--synthetic-acceptance-rate",
        "policy.acceptance_rate",
        float,
        "Accept at this rate whatever the models say; the policy is then synthetic.",
    ),
    setting(
        "--drafter",
        "drafter.name",
        Name(".config:DRAFTERS"),
        "Where drafts come from.  [default: as the draft's files say]",
    ),
    setting(
        "--num-spec-tokens",
        "decoding.num_spec_tokens",
        int,
        "Tokens per draft; 0 decodes plainly.  [default: 4]",
    ),
    setting("--temperature", "sampling.temperature", float, "0 is greedy.  [default: 1.0]"),
    setting("--top-k", "sampling.top_k", int, "Keep the k most likely tokens."),
    setting("--top-p", "sampling.top_p", float, "Keep the most likely tokens with this mass."),
    setting("--min-p", "sampling.min_p", float, "Keep tokens at least this likely, relatively."),
    setting("--seed", "sampling.seed", int, "Repeats a result.  [default: random, reported]"),
    setting("--max-tokens", "decoding.max_tokens", int, "Emit at most so many.  [default: 128]"),
    setting(
        "--stop", "decoding.stop", str, "End before this text; may be repeated.", multiple=True
    ),
    setting("--ignore-eos", "decoding.ignore_eos", None, "Go on after an end-of-text token."),
    setting("--chat", "decoding.chat", None, "Put the prompt through the chat template."),
    setting("--json-schema", "decoding.json_schema", str, "Emit JSON of this file's schema."),
    setting("--regex", "decoding.regex", str, "Emit what this regular expression matches."),
)


@contextmanager
def errors_in_one_line(*, debug: bool = False) -> Iterator[None]:
    """Turn the application's errors into click's, unless a traceback is wanted."""
    from ..core.errors import AcceptorError  # noqa: PLC0415, imports torch

    try:
        yield
    except AcceptorError as error:
        if debug:
            raise
        raise click.UsageError(str(error)) from None


def path_of(option: click.Option) -> str:
    """The path of the setting that one of `SETTINGS` stands for."""
    assert option.name is not None
    return option.name.replace("__", ".")


def given(values: Mapping[str, Any]) -> dict[str, object]:
    """The settings that were typed: path -> value."""
    typed = {path_of(one): values[str(one.name)] for one in SETTINGS}
    # Compared by identity: a switch that is off was not typed, but a 0 was.
    return {
        path: value
        for path, value in typed.items()
        if value not in (None, ()) and value is not False
    }
