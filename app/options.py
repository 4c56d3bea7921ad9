"""The flags of commands, and the settings that the flags of `acceptor generate` stand for.

Nothing here imports torch before a command needs it, so help appears at once.
"""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

import click
from attrs import frozen

FAILED = 1
"""The exit code of a command that fails."""


def standing_at(place: str) -> Any:
    """The object at `module:attribute`, the module relative to this package."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module, __package__), attribute)


def run(place: str, *options: Mapping[str, Any], debug: bool = False) -> None:
    """Import the function at a place and call it with a command's options.

    The application's errors become click's, unless a traceback is wanted. If the function returns
    False, the command fails.
    """
    from ..core.errors import AcceptorError  # noqa: PLC0415, imports torch

    try:
        if standing_at(place)(*options) is False:
            click.get_current_context().exit(FAILED)
    except AcceptorError as error:
        if debug:
            raise
        raise click.UsageError(_with_flag(str(error))) from None


def _with_flag(message: str) -> str:
    """An error that names the flag of a setting, such as `--threads` for `num_threads`."""
    setting, colon, problem = message.partition(": ")
    ending = "-" + setting.removeprefix("num_").replace("_", "-")
    context = click.get_current_context()
    options = [one for one in context.command.params if one.name in _chosen(context.params)]
    flags = [one.opts[0] for one in options if one.opts[0].endswith(ending)]
    return f"{flags[0] if len(flags) == 1 else setting}{colon}{problem}"


@frozen
class Name(click.ParamType[str]):
    """One of several names, looked up only when help is printed; the config checks the value."""

    name = "name"
    _place: str
    _note: Callable[[Any], str] = lambda _: ""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """The names as a choice, and a note."""
        names: Collection[str] = standing_at(self._place)
        return f"[{'|'.join(names)}{self._note(names)}]"


class NamedPath(click.Path):
    """A path with a name: pathlib takes an empty one for the working directory."""

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Any:
        """The path; it may be empty only as the option's own `flag_value`."""
        if not value and value != param.flag_value:
            self.fail("expected a path, got ''", param, ctx)
        return super().convert(value, param, ctx)


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


SETTINGS: Mapping[str, click.Option] = {
    "models.target": option("--target", str, "Target: directory or hub id.  [default: bundled]"),
    "models.draft": option("--draft", str, "Draft: directory or hub id.  [default: bundled]"),
    "models.dtype": option("--dtype", str, "float32, bfloat16 or float16."),
    "models.device": option("--device", str, "cpu, cuda or cuda:N.  [default: cpu]"),
    "models.num_threads": option(
        "--threads", int, "CPU threads.  [default: by the target's size]", name="num_threads"
    ),
    "models.forward": option(
        "--forward", Name("..adapters.forward_choice:FORWARDS"), "What computes.  [default: auto]"
    ),
    "models.adapter": option(
        "--model-adapter", Name("..adapters.loader:ADAPTERS"), "Whose model code.  [default: auto]"
    ),
    "backend": option(
        "--backend", Name("..backends:BACKENDS"), "What verifies drafts.  [default: reference]"
    ),
    "policy.name": option(
        "--policy", Name(POLICIES, _lossy), "Which draft tokens survive.  [default: probabilistic]"
    ),
    "policy.acceptance_rate": option(
        "--synthetic-acceptance-rate",
        float,
        "Accept at this rate whatever the models say; implies the policy synthetic.",
    ),
    "drafter.name": option(
        "--drafter",
        Name(".config:DRAFTERS"),
        "Where drafts come from.  [default: by the draft's files]",
    ),
    "decoding.num_spec_tokens": option(
        "--num-spec-tokens", int, "Tokens per draft; 0 decodes without drafts.  [default: 4]"
    ),
    "sampling.temperature": option("--temperature", float, "0 is greedy.  [default: 1.0]"),
    "sampling.top_k": option("--top-k", int, "Keep the k most likely tokens."),
    "sampling.top_p": option("--top-p", float, "Keep the most likely tokens with this mass."),
    "sampling.min_p": option("--min-p", float, "Keep tokens this likely relative to the best."),
    "sampling.seed": option("--seed", int, "Repeat a result.  [default: random, and printed]"),
    "decoding.max_tokens": option("--max-tokens", int, "The most tokens.  [default: 128]"),
    "decoding.stop": option("--stop", str, "End before this text; may be repeated.", multiple=True),
    "decoding.ignore_eos": option("--ignore-eos", None, "Continue after an end-of-text token."),
    "decoding.chat": option("--chat", None, "Apply the target's chat template to the prompt."),
    "decoding.json_schema": option("--json-schema", str, "Follow the JSON schema in this file."),
    "decoding.regex": option("--regex", str, "Emit a text that this regular expression matches."),
}
"""Setting -> the option of `acceptor generate` for it."""


def given(values: Mapping[str, Any]) -> dict[str, object]:
    """The settings that were typed: path -> value."""
    return _chosen({path: values[str(one.name)] for path, one in SETTINGS.items()})


def _chosen(values: Mapping[str, Any]) -> dict[str, object]:
    # Compared by identity: a switch that is off was not chosen, but a 0 was.
    return {name: one for name, one in values.items() if one not in (None, ()) and one is not False}
