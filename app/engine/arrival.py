"""A request as it was handed in to an engine, not checked against the models yet."""

from time import perf_counter

from attrs import field, frozen

from ..request import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    OnProgress,
    Progress,
    RequestRecord,
    ignore,
)


@frozen(eq=False, kw_only=True)
class Arrival:
    """What was handed in, and when.

    Attributes:
        request_id: identifies it.
        request: None if not even its own values are right.
        seed: that is reported if it is refused.
        on_progress: the listener.
        error: why it cannot run; empty if nothing is known to be wrong.
        time: when it came.
    """

    request_id: int
    request: GenerationRequest | None
    seed: int
    on_progress: OnProgress = ignore
    error: str = ""
    time: float = field(factory=perf_counter)

    def refused(self, error: str) -> Progress:
        """The end of a request that cannot be decoded."""
        return Progress(
            request_index=self.request_id,
            result=GenerationResult(finish_reason=FinishReason.ERROR, seed=self.seed, error=error),
            record=RequestRecord(
                request_id=self.request_id,
                arrival_time=self.time,
                finish_time=perf_counter(),
                prompt_len=0 if self.request is None else len(self.request.prompt_token_ids),
                status=FinishReason.ERROR,
                error=error,
            ),
        )
