"""Text from token ids that come one after the other.

This module refuses to emit half a character: text waits until its bytes are whole.
"""

from collections.abc import Iterable

import tokenizers
from tokenizers.decoders import DecodeStream


class Detokenizer:
    """Decodes a growing sequence of token ids; what it emits adds up to decoding them all.

    Args:
        backend: the tokenizer.
        skip_special_tokens: leave special tokens out of the text.
    """

    def __init__(self, backend: tokenizers.Tokenizer, *, skip_special_tokens: bool) -> None:
        self._backend = backend
        self._skip_special_tokens = skip_special_tokens
        self._stream = DecodeStream(skip_special_tokens=skip_special_tokens)
        self._token_ids: list[int] = []
        self._num_emitted = 0

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these token ids complete; empty while a character is unfinished."""
        pieces = []
        for token_id in token_ids:
            self._token_ids.append(token_id)
            pieces.append(self._stream.step(self._backend, token_id) or "")
        text = "".join(pieces)
        self._num_emitted += len(text)
        return text

    def finish(self) -> str:
        """What is still unfinished, with U+FFFD for bytes that never became a character."""
        text = self._backend.decode(self._token_ids, skip_special_tokens=self._skip_special_tokens)
        rest = text[self._num_emitted :]
        self._num_emitted = len(text)
        return rest
