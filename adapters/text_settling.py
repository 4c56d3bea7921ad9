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
    if backend.decoder is None:
        return Settling.WITH_THE_TOKEN
    stages = list(_flatten(json.loads(backend.decoder.__getstate__())))
    names = [stage["type"] for stage in stages]
    first_joined = next((i for i, name in enumerate(names) if name in JOINING), len(names))
    if not all(_strips_the_start(stage) for stage in stages[first_joined + 1 :]):
        return Settling.AT_THE_END
    before = names[:first_joined]
    if "ByteLevel" in names:
        per_token = all(name in PER_TOKEN for name in before)
        return Settling.WITH_THE_CHARACTER if per_token else Settling.AT_THE_END
    if "ByteFallback" in before:
        return _settling_of_byte_fallback(stages[:first_joined], before.index("ByteFallback"))
    per_token = all(name in PER_TOKEN for name in before)
    return Settling.WITH_THE_TOKEN if per_token else Settling.AT_THE_END


def is_byte_token(token: str) -> bool:
    """Whether a byte fallback may take this token for a byte."""
    return len(token) == len("<0x0A>") and token.startswith("<0x") and token.endswith(">")


def _settling_of_byte_fallback(stages: Sequence[Mapping[str, Any]], place: int) -> Settling:
    """Which tokens are bytes must show in the tokens themselves, before any other stage."""
    known = all(_makes_no_byte_tokens(stage) for stage in stages[:place]) and all(
        stage["type"] in PER_TOKEN for stage in stages[place + 1 :]
    )
    return Settling.AFTER_BYTE_TOKENS if known else Settling.AT_THE_END


def _flatten(stage: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if stage["type"] == "Sequence":
        for part in stage["decoders"]:
            yield from _flatten(part)
    else:
        yield stage


def _strips_the_start(stage: Mapping[str, Any]) -> bool:
    return (stage["type"], stage.get("stop")) == ("Strip", 0)


def _makes_no_byte_tokens(stage: Mapping[str, Any]) -> bool:
    """What it puts into a token cannot be part of a byte token."""
    return stage["type"] == "Replace" and not BYTE_TOKEN_CHARACTERS.issuperset(stage["content"])
