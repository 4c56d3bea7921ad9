"""One prompt, decoded and measured.

Tokens per second count decoding alone: loading, the prompt and printing are left out.
"""

from collections.abc import Callable

from attrs import evolve, frozen

from .decoder import Decoder
from .drafter import NoDrafter
from .engine.engine import Engine
from .request import Fragment, GenerationRequest, GenerationResult

WARM_UP_TOKENS = 16


@frozen
class Measured:
    """A result and how long it took."""

    result: GenerationResult
    decode_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens over the time of the steps; 0 if there were none."""
        num_tokens = len(self.result.token_ids)
        return num_tokens / self.decode_seconds if num_tokens else 0.0


def measure(engine: Engine, show: Callable[[Fragment], None] = lambda _: None) -> Measured:
    """Decode an engine's one request to its end, showing text as it becomes certain."""
    result = None
    for progress in engine:
        for fragment in progress.fragments:
            show(fragment)
        result = progress.result
    assert result is not None
    return Measured(result, engine.loop.decode_seconds)


def warm_up(decoder: Decoder, request: GenerationRequest) -> None:
    """Decode a little and forget it, so that what is measured next starts warm."""
    short = evolve(request, max_tokens=min(WARM_UP_TOKENS, request.max_tokens))
    measure(decoder.start([short]))


def measure_plain(decoder: Decoder, request: GenerationRequest) -> Measured:
    """Decode the same request through the same loop without drafts."""
    plain = evolve(decoder, drafter=NoDrafter())
    warm_up(plain, request)
    return measure(plain.start([request]))
