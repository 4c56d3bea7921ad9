"""Checks requests against the models before any work."""

from typing import Any

from ..core import InvalidInputError, LanguageModel
from ..core.checks import check_integer, check_integers
from .request import GenerationRequest


def check_text(text: str) -> None:
    """Refuse a prompt that no tokenizer can read.

    Raises:
        InvalidInputError: half of a surrogate pair is in it, as UTF-16 that was cut leaves behind.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"prompt: expected text that UTF-8 can hold, got {text[error.start]!r} at place "
            f"{error.start}"
        ) from None


def check_request(request: GenerationRequest, target: LanguageModel[Any], max_len: int) -> None:
    """Refuse what the target cannot continue within max_len tokens."""
    length = len(request.prompt_token_ids)
    if length >= max_len:
        raise InvalidInputError(
            f"prompt_token_ids: expected fewer than the {max_len} tokens of the target's context, "
            f"got {length}"
        )
    check_integers("prompt_token_ids", request.prompt_token_ids, 0, target.vocab_size - 1)
    for token_id, _ in request.params.logit_bias:
        check_integer("params.logit_bias: token id", token_id, 0, target.vocab_size - 1)
