"""Checks requests against the models before any work; this module refuses to repair them."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from ..core.checks import check_integer
from ..core.errors import InvalidInputError
from ..core.ports import LanguageModel
from .request import GenerationRequest
from .request_state import Detokenizer, RequestState


def admit(
    requests: Sequence[GenerationRequest],
    target: LanguageModel[Any],
    eos_token_ids: frozenset[int],
    new_detokenizer: Callable[[], Detokenizer],
) -> list[RequestState]:
    """States ready to be decoded, each with a seed.

    Raises:
        InvalidInputError: a request does not fit the target model; says which.
    """
    for index, request in enumerate(requests):
        try:
            _check(request, target)
        except InvalidInputError as error:
            raise InvalidInputError(f"requests[{index}].{error}") from None
    return [
        RequestState(
            index=index,
            request=evolve(request, params=request.params.with_seed()),
            end_token_ids=_end_token_ids(request, eos_token_ids),
            max_len=min(len(request.prompt_token_ids) + request.max_tokens, target.max_model_len),
            detokenizer=new_detokenizer(),
        )
        for index, request in enumerate(requests)
    ]


def _check(request: GenerationRequest, target: LanguageModel[Any]) -> None:
    length, context = len(request.prompt_token_ids), target.max_model_len
    if length >= context:
        raise InvalidInputError(
            f"prompt_token_ids: expected fewer than the {context} tokens of the target's context, "
            f"got {length}"
        )
    for token_id in request.prompt_token_ids:
        check_integer("prompt_token_ids", token_id, 0, target.vocab_size - 1)
    for token_id, _ in request.params.logit_bias:
        check_integer("params.logit_bias: token id", token_id, 0, target.vocab_size - 1)


def _end_token_ids(request: GenerationRequest, eos_token_ids: frozenset[int]) -> frozenset[int]:
    eos = frozenset[int]() if request.ignore_eos else eos_token_ids
    return eos.union(request.stop_token_ids)
