"""The Jinja environment that chat templates expect, made safe for an untrusted template.

Filters, globals and whitespace are those of the transformers library. A template cannot load other
templates or change anything; `confined_worker` limits its time and memory.
"""

import json
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


class RaisedByTemplateError(TemplateError):
    """The template called `raise_exception`: it does not accept these messages."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and renders templates."""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
        )
        self.filters["tojson"] = _to_json
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _now,
            "dict": _make_dict,
            "namespace": PublicNamespace,
        }


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; here only its body matters."""

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


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # Jinja's own filter writes HTML entities.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> None:
    raise RaisedByTemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)
