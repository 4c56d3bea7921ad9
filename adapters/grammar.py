"""Grammars through xgrammar: outputs that are JSON of a schema, or match a regular expression.

Parts of a schema or an expression that xgrammar ignores are an error: outputs would not follow
them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen
from torch import Tensor

from ..core import InvalidInputError, UnavailableError, pack_allowed
from .error_text import one_line, unfit
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import xgrammar


@frozen(eq=False)
class GrammarMasks:
    """Makes the masks of one output that follows a grammar.

    Attributes:
        within: [num_words] int32, a mask that all others stay within; None for all tokens.
    """

    matcher: "xgrammar.GrammarMatcher"
    within: Tensor | None = None

    def fill(self, masks: Tensor, draft_token_ids: Sequence[int]) -> None:
        """Write the masks after the output and each draft token: [num_tokens + 1, num_words]."""
        num_taken = 0
        for row, token_id in enumerate((*draft_token_ids, -1)):
            if self.matcher.is_terminated():
                break
            self.matcher.fill_next_token_bitmask(masks, row)
            if self.within is not None:
                masks[row] &= self.within
            if token_id < 0 or not self.matcher.accept_token(token_id):
                break
            num_taken += 1
        self.matcher.rollback(num_taken)

    def accept(self, token_id: int) -> None:
        """Advance by emitted tokens.

        Raises:
            InvalidInputError: the grammar forbids it.
        """
        if not self.matcher.accept_token(token_id):
            raise InvalidInputError(f"token: expected one that the grammar allows, got {token_id}")


@frozen(eq=False)
class Grammars:
    """Compiles grammars for one target's tokens.

    Attributes:
        tokens: the target's vocabulary.
        compiler: compiles grammars for it.
    """

    tokens: "xgrammar.TokenizerInfo"
    compiler: "xgrammar.GrammarCompiler"

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int, end_token_ids: Iterable[int]) -> "Grammars":
        """Prepare a target's tokens.

        Args:
            tokenizer: the target's.
            vocab_size: the width of its logits.
            end_token_ids: tokens that end an output; allowed only where the grammar is complete.

        Raises:
            UnavailableError: xgrammar is not there.
            InvalidInputError: no token ends an output.
        """
        if find_spec("xgrammar") is None:
            install = "pip install 'acceptor[grammar]'"
            raise UnavailableError(f"grammar: expected xgrammar, got none; install with: {install}")
        import xgrammar  # noqa: PLC0415, an extra, and slow to import
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415, comes with it

        end = sorted(end_token_ids)
        if not end:
            raise InvalidInputError("grammar: expected a target with an end-of-text token")
        known = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend)
        tokens = xgrammar.TokenizerInfo.from_huggingface(
            known, vocab_size=vocab_size, stop_token_ids=end
        )
        return cls(tokens, xgrammar.GrammarCompiler(tokens))

    def json_schema(self, schema: str) -> Callable[[], GrammarMasks]:
        """The grammar of a schema's JSON, written as `json.dumps` writes it.

        Raises:
            InvalidInputError: xgrammar does not know the schema, or ignores a part of it; or it is
                not JSON.
        """
        try:
            json.loads(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise unfit("json_schema", "JSON", error, InvalidInputError) from None
        compile_schema = partial(self.compiler.compile_json_schema, any_whitespace=False)
        # JSON escapes control characters, but xgrammar allows them where lengths are limited.
        tokens = self.tokens.decoded_vocab
        plain = pack_allowed(torch.tensor([[min(token, default=32) >= 32 for token in tokens]]))[0]
        return self._masks("json_schema", schema, ignored_in_schema, compile_schema, plain)

    def regex(self, pattern: str) -> Callable[[], GrammarMasks]:
        """The grammar of texts that a regular expression matches as a whole.

        Raises:
            InvalidInputError: xgrammar cannot read it, or ignores a part of it.
        """
        return self._masks("regex", pattern, ignored_in_regex, self.compiler.compile_regex)

    def _masks(
        self,
        name: str,
        text: str,
        ignored_in: Callable[[str], str | None],
        compile_text: Callable[[str], Any],
        within: Tensor | None = None,
    ) -> Callable[[], GrammarMasks]:
        import xgrammar  # noqa: PLC0415, an extra

        ignored = ignored_in(text)
        if ignored is not None:
            raise unfit(name, "what xgrammar heeds", ignored, InvalidInputError)
        try:
            grammar = compile_text(text)
        except (RuntimeError, UnicodeEncodeError) as error:
            # The message follows the place in xgrammar's source, or in the text.
            said = one_line(error)
            said = said.partition(": ")[2] or said
            raise unfit(name, "what xgrammar reads", said, InvalidInputError) from None
        return lambda: GrammarMasks(xgrammar.GrammarMatcher(grammar), within)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IGNORED = _words(
    "$dynamicRef $recursiveRef contains dependencies dependentRequired dependentSchemas else if "
    "maxContains minContains not then uniqueItems"
)
SOLE = _words("$ref allOf anyOf const enum oneOf")
"""xgrammar ignores other keywords beside one of these."""
TYPED = _words(
    "exclusiveMaximum exclusiveMinimum format maxItems maxLength maxProperties maximum minItems "
    "minLength minProperties minimum multipleOf pattern propertyNames required"
)
"""xgrammar ignores these unless the type is given, by "type" or by one of the next:"""
TELLING = _words(
    "additionalProperties items patternProperties prefixItems properties unevaluatedItems "
    "unevaluatedProperties"
)
NAMED = _words("$defs definitions patternProperties properties")
"""Keywords that hold schemas by name; a name may equal a keyword."""
VALUES = _words("const default enum examples")
"""Keywords that hold arbitrary values."""
_NAMES = ("boolean", "integer", "number", "string", "null", "array", "object")
TYPES = dict(zip((bool, int, float, str, type(None), list, dict), _NAMES, strict=True))


def ignored_in_schema(schema: str) -> str | None:
    """The first part that xgrammar ignores; None, too, if the text is not a schema."""
    try:
        return next(_ignored(json.loads(schema)), None)
    except (ValueError, TypeError, RecursionError):
        return None


def ignored_in_regex(pattern: str) -> str | None:
    """The first lookaround or boundary assertion."""
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
        if "type" in given and not _agree(schema, sole[0]):
            beside.add("type")
        yield from (f"{one} beside {sole[0]}" for one in sorted(beside))
    elif not {"type", *TELLING} & given:
        yield from (f"{one} without type" for one in sorted(TYPED & given))
    unknown = set(schema.get("required", ())) - set(schema.get("properties", ()))
    yield from (f"required {name!r} without its property" for name in sorted(unknown))
    if "pattern" in given and {"minLength", "maxLength"} & given:
        yield "a length beside pattern"
    if not re.match("#(/|$)", str(schema.get("$ref", "#"))):
        yield f"$ref to {schema['$ref']}"
    if len(schema.get("allOf", "")) > 1:
        yield "allOf of several"


def _agree(schema: Mapping[str, Any], keyword: str) -> bool:
    """Whether all values that the keyword allows have the schema's type."""
    wanted = [*_types(schema)]
    if "number" in wanted:
        wanted.append("integer")
    return all(one in wanted for one in _types({keyword: schema[keyword]}))


def _types(schema: Any) -> Iterator[str]:
    """The types that a schema allows; "any" if it does not say."""
    match schema:
        case {"type": str(name)}:
            yield name
        case {"type": list(names)}:
            yield from names
        case {"const": value}:
            yield TYPES[type(value)]
        case {"enum": list(values)}:
            yield from (TYPES[type(value)] for value in values)
        case {"allOf": list(branches)} | {"anyOf": list(branches)} | {"oneOf": list(branches)}:
            for branch in branches:
                yield from _types(branch)
        case _:
            yield "any"
