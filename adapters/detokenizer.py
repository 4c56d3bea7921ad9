"""Turns a stream of token ids into text, which is emitted as soon as it is settled.

Text is settled when no later token can change it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """Tokens are bytes of UTF-8, and a character may take several tokens."""
    AFTER_BYTE_TOKENS = auto()
    """A run of tokens such as <0x0A> is text if all of it is UTF-8, else one U+FFFD per token."""
    AT_THE_END = auto()
    """For all we know of the decoder, any later token may change the text."""


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
        # Leading spaces are stripped before the first text is emitted.
        (stage["type"], stage.get("stop")) == ("Strip", 0)
        for stage in stages[place + 1 :]
    )
    return settling if known else Settling.AT_THE_END


def stages_of(backend: tokenizers.Tokenizer) -> list[Mapping[str, Any]]:
    """The steps of a tokenizer's decoder, as tokenizer.json lists them."""
    decoder = backend.decoder
    return [] if decoder is None else [*_flatten(json.loads(decoder.__getstate__()))]


def is_byte_token(token: str) -> bool:
    """Whether a byte fallback may take this token for a byte."""
    return len(token) == len("<0x0A>") and token.startswith("<0x") and token.endswith(">")


def _tells_byte_tokens(stages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the tokens alone show what a byte fallback takes for bytes."""
    for stage in stages:
        if stage["type"] == "ByteFallback":
            return True
        # Text that a step inserts into tokens must not be part of a byte token.
        if stage["type"] != "Replace" or BYTE_TOKEN_CHARACTERS.issuperset(stage["content"]):
            return False
    return False


def _flatten(stage: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if stage["type"] == "Sequence":
        for part in stage["decoders"]:
            yield from _flatten(part)
    else:
        yield stage


REPLACEMENT = "\ufffd"
CONTEXT_OF_BYTES = 8
"""In tokens of at least one byte: a character has up to four, and may follow an unfinished one."""
MAX_WITHOUT_TEXT = 64


class Detokenizer:
    """Decodes a growing sequence of token ids; the emitted text equals decoding them all at once.

    Each step decodes a short window: the tokens whose text is not settled, after some others as
    context, because a decoder may treat the first token or spaces of a text differently.
    """

    def __init__(self, backend: tokenizers.Tokenizer, *, skip_special_tokens: bool) -> None:
        self._backend = backend
        self._skip_special_tokens = skip_special_tokens
        self._settling = settling_of(backend)
        self._left_out = _left_out_of(backend) if skip_special_tokens else frozenset()
        self._token_ids: list[int] = []
        self._window: list[int] = []
        self._num_settled = 0
        self._num_emitted = 0

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these token ids settle; empty if they settle none."""
        text = "".join([self._push(token_id) for token_id in token_ids])
        self._num_emitted += len(text)
        return text

    def finish(self) -> str:
        """The remaining text, with U+FFFD for bytes that never became a character."""
        text = self._decode(self._token_ids)
        rest = text[self._num_emitted :]
        self._num_emitted = len(text)
        return rest

    def _push(self, token_id: int) -> str:
        self._token_ids.append(token_id)
        token = self._backend.id_to_token(token_id)
        if self._settling is Settling.AT_THE_END or token is None or token in self._left_out:
            return ""
        self._window.append(token_id)
        if self._settling is Settling.AFTER_BYTE_TOKENS and is_byte_token(token):
            return ""
        text, by_character = self._decode(self._window), Settling.WITH_THE_CHARACTER
        # Only the last character may be unfinished.
        is_open = self._settling is by_character and text.endswith(REPLACEMENT)
        settled = text[self._num_settled : len(text) - is_open]
        if text:
            self._keep_context(CONTEXT_OF_BYTES if is_open else 1, is_open)
        elif len(self._window) > MAX_WITHOUT_TEXT:
            # A decoder may drop the start of a text.
            self._settling = Settling.AT_THE_END
        return settled

    def _keep_context(self, num_kept: int, num_open: int) -> None:
        """Keep enough tokens that they have text, and that what follows does not start a text."""
        while not (text := self._decode(self._window[-num_kept:])):
            num_kept *= 2
        self._window, self._num_settled = self._window[-num_kept:], len(text) - num_open

    def _decode(self, token_ids: list[int]) -> str:
        return decode(self._backend, token_ids, skip_special_tokens=self._skip_special_tokens)


def decode(
    backend: tokenizers.Tokenizer, token_ids: Sequence[int], *, skip_special_tokens: bool
) -> str:
    """The text of token ids; a replacement character where the library fails."""
    try:
        return backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
    except BaseException as error:
        # A panic of the library, as on a pattern that backtracks forever, is not an Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            return REPLACEMENT
        raise


def _left_out_of(backend: tokenizers.Tokenizer) -> frozenset[str]:
    """Added tokens that decoding skips; of one that is listed twice, only one entry may say so."""

    def has_text(token_id: int, *, skip_special_tokens: bool) -> bool:
        return bool(decode(backend, [token_id], skip_special_tokens=skip_special_tokens))

    return frozenset(
        token.content
        for token_id, token in backend.get_added_tokens_decoder().items()
        if token.special
        or (
            has_text(token_id, skip_special_tokens=False)
            and not has_text(token_id, skip_special_tokens=True)
        )
    )
