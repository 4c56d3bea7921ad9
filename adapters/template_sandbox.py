"""The Jinja environment that chat templates expect, made safe for an untrusted template.

Filters, globals and whitespace are those of the transformers library. A template cannot load other
templates, change anything, or take more than a number of steps; `confined_worker` limits the rest.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_STEPS = 100_000
"""Rounds of loops and calls in one rendering; a long chat takes a few thousand."""
MAX_RESULT_SIZE = 1_000_000
"""Items of a repeated sequence, or bits of an integer."""


class RaisedByTemplateError(TemplateError):
    """The template called `raise_exception`: it does not accept these messages."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and renders one template at a time."""

    # The sandbox asks `call_binop` about these: short expressions with enormous results.
    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
        )
        self.num_steps = 0
        self.filters["tojson"] = _to_json
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _now,
            "dict": _make_dict,
            "namespace": PublicNamespace,
        }
        # It writes as much nonsense as it is asked for, and no chat needs any.
        del self.globals["lipsum"]

    def count_step(self) -> None:
        """Raise `SecurityError` when a rendering has taken too many steps."""
        self.num_steps += 1
        if self.num_steps > MAX_STEPS:
            raise SecurityError(f"more than {MAX_STEPS} steps")

    def call(self, __context: Context, __obj: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls, counted: macros can recurse."""
        self.count_step()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiply or raise to a power, within limits."""
        if _result_size(operator, left, right) > MAX_RESULT_SIZE:
            raise SecurityError(f"{operator} with too large a result")
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse, then let every round of every loop count a step, out of the template's reach."""
        template = super()._parse(source, name, filename)
        for loop in template.find_all(nodes.For):
            count = nodes.EnvironmentAttribute("count_step")
            loop.body.insert(0, nodes.ExprStmt(nodes.Call(count, [], [], None, None)))
        template.set_environment(self)
        return template


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012, as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """The body, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class PublicNamespace(Namespace):
    """`namespace()` without attributes that Python itself would look up."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *pairs = args
        values = dict(*pairs, **kwargs)
        for name in values:
            _check_public(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"namespace attribute {name!r} is private")


def _result_size(operator: str, left: Any, right: Any) -> float:
    if operator == "**":
        return int(left).bit_length() * abs(float(right))
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple):
            return len(sequence) * float(count)
    return int(left).bit_length() + int(right).bit_length()


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # Jinja's own filter writes HTML entities.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> None:
    raise RaisedByTemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)
