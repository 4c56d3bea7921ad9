"""When a tokenizer's decoder has settled the text of a token, whatever tokens follow.

Text that is shown before it is settled could turn out different at the end.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import tokenizers

JOINING = ("Fuse", "ByteLevel")
PER_TOKEN = ("Metaspace", "Replace", "Strip", "WordPiece")
BYTE_TOKEN_CHARACTERS = frozenset("<>+xabcdefABCDEF0123456789")


class Settling(Enum):
    """The moment at which text is settled."""

    WITH_THE_TOKEN = auto()
    WITH_THE_CHARACTER = auto()
    """Tokens are bytes of UTF-8, and a character may take several."""
    AFTER_BYTE_TOKENS = auto()
    """A run of tokens such as <0x0A> is text if all of it is UTF-8, else one U+FFFD for each."""
    AT_THE_END = auto()
    """Any later token may change it, as far as we know the decoder."""


def settling_of(backend: tokenizers.Tokenizer) -> Settling:
    """When the text of this tokenizer's tokens is settled."""
    stages = stages_of(backend)
    names = [stage["type"] for stage in stages]
    place = next((i for i, name in enumerate(names) if name in JOINING), len(names))
    before, settling = names[:place], Settling.WITH_THE_TOKEN
    if names[place : place + 1] == ["ByteLevel"]:
        settling = Settling.WITH_THE_CHARACTER
    elif _tells_byte_tokens(stages[:place]):
        settling = Settling.AFTER_BYTE_TOKENS
        before.remove("ByteFallback")
    known = all(name in PER_TOKEN for name in before) and all(
        # Spaces at the start are gone before the first text comes.
        (stage["type"], stage.get("stop")) == ("Strip", 0)
        for stage in stages[place + 1 :]
    )
    return settling if known else Settling.AT_THE_END


def stages_of(backend: tokenizers.Tokenizer) -> list[Mapping[str, Any]]:
    """What a tokenizer's decoder does, step by step, as tokenizer.json has it."""
    decoder = backend.decoder
    return [] if decoder is None else [*_flatten(json.loads(decoder.__getstate__()))]


def is_byte_token(token: str) -> bool:
    """Whether a byte fallback may take this token for a byte."""
    return len(token) == len("<0x0A>") and token.startswith("<0x") and token.endswith(">")


def _tells_byte_tokens(stages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a byte fallback takes for bytes what shows as bytes in the tokens themselves."""
    for stage in stages:
        if stage["type"] == "ByteFallback":
            return True
        # What is put into a token must not be part of a byte token.
        if stage["type"] != "Replace" or BYTE_TOKEN_CHARACTERS.issuperset(stage["content"]):
            return False
    return False


def _flatten(stage: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if stage["type"] == "Sequence":
        for part in stage["decoders"]:
            yield from _flatten(part)
    else:
        yield stage
