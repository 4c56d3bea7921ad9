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
        results = {
            progress.request_index: progress.result
            for progress in self.start(requests)
            if progress.result is not None
        }
        return [results[index] for index in range(len(requests))]

    def start(self, requests: Sequence[GenerationRequest]) -> Engine:
        """Admit a batch; iterating over the returned engine decodes it.

        Raises:
            InvalidInputError: a request does not fit the target.
        """
        context = self.target.max_model_len
        for index, request in enumerate(requests):
            try:
                check_request(request, self.target, context)
            except InvalidInputError as error:
                raise InvalidInputError(f"requests[{index}].{error}") from None
        lengths = [len(one.prompt_token_ids) + one.max_tokens for one in requests]
        engine = Engine.of(
            self,
            Limits(
                num_slots=max(len(requests), 1),
                max_len=min(max(lengths, default=1), context),
                prefill_tokens=max(sum(lengths), 1),
            ),
        )
        for request in requests:
            engine.add_request(request)
        return engine
