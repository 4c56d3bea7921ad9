"""What a JSON schema or a regular expression asks for that xgrammar ignores.

Outputs would not follow it, so it is refused.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IGNORED = _words(
    "$dynamicRef $recursiveRef contains dependencies dependentRequired dependentSchemas else if "
    "maxContains minContains not then uniqueItems"
)
SOLE = _words("$ref allOf anyOf const enum oneOf")
"""What else is asked for beside one of these is ignored."""
TYPED = _words(
    "exclusiveMaximum exclusiveMinimum format maxItems maxLength maxProperties maximum minItems "
    "minLength minProperties minimum multipleOf pattern propertyNames required"
)
"""Ignored where nothing says the type, as these do:"""
TELLING = _words(
    "additionalProperties items patternProperties prefixItems properties unevaluatedItems "
    "unevaluatedProperties"
)
NAMED = _words("$defs definitions patternProperties properties")
"""What holds schemas by names, which may be those of keywords."""
VALUES = _words("const default enum examples")
"""What holds any values."""


def ignored_in_schema(schema: str) -> str | None:
    """The first part that is not heeded; None, too, where the text is no JSON."""
    try:
        return next(_ignored(json.loads(schema)), None)
    except (ValueError, RecursionError):
        return None


def ignored_in_regex(pattern: str) -> str | None:
    """The first assertion about what stands around it."""
    found = re.search(r"(?<!\\)(?:\\\\)*(\(\?<?[=!])", pattern)
    return found and found[1]


def _ignored(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _ignored(one)
    if isinstance(schema, dict):
        yield from _ignored_here(schema)
        for keyword, value in schema.items():
            if keyword in NAMED and isinstance(value, dict):
                yield from _ignored([*value.values()])
            elif keyword not in VALUES:
                yield from _ignored(value)


def _ignored_here(schema: Mapping[str, Any]) -> Iterator[str]:
    given = schema.keys()
    yield from sorted(IGNORED & given)
    sole = sorted(SOLE & given)
    if sole:
        beside = {*sole[1:], *TYPED, *TELLING} & given
        yield from (f"{one} beside {sole[0]}" for one in sorted(beside))
    elif not {"type", *TELLING} & given:
        yield from (f"{one} without type" for one in sorted(TYPED & given))
    if "pattern" in given and {"minLength", "maxLength"} & given:
        yield "a length beside pattern"
    if not re.match("#(/|$)", str(schema.get("$ref", "#"))):
        yield f"$ref to {schema['$ref']}"
    if len(schema.get("allOf", "")) > 1:
        yield "allOf of several"
