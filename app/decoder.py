"""Decodes a fixed batch of requests to its end: an engine with a slot for every request."""

from collections.abc import Sequence

from attrs import frozen

from ..core import InvalidInputError
from .engine.engine import Engine
from .engine.parts import Limits, Parts
from .request import GenerationRequest, GenerationResult, check_request


@frozen(eq=False, kw_only=True)
class Decoder(Parts):
    """Parts that decode one batch at a time."""

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        """Decode a batch to its end; the results are in the order of the requests.

        Raises:
            InvalidInputError: a request does not fit the target.
        """
        return self._engine_for(requests).generate(requests)

    def start(self, requests: Sequence[GenerationRequest]) -> Engine:
        """Admit a batch; iterating over the returned engine decodes it.

        Raises:
            InvalidInputError: a request does not fit the target.
        """
        engine = self._engine_for(requests)
        for request in requests:
            engine.add_request(request)
        return engine

    def _engine_for(self, requests: Sequence[GenerationRequest]) -> Engine:
        context = self.target.max_model_len
        for index, request in enumerate(requests):
            try:
                check_request(request, self.target, context)
            except InvalidInputError as error:
                raise InvalidInputError(f"requests[{index}].{error}") from None
        lengths = [len(one.prompt_token_ids) + one.max_tokens for one in requests]
        limits = Limits(
            num_slots=max(len(requests), 1),
            max_len=min(max(lengths, default=1), context),
            prefill_tokens=max(sum(lengths), 1),
        )
        return Engine.of(self, limits)
