"""One request in the engine: its state, and when things happened to it."""

from collections.abc import Callable
from time import perf_counter

from attrs import define, evolve, field, frozen

from ...core.output import Status
from ...core.statistics import AcceptanceStatistics
from ..request import FinishReason, GenerationRequest, GenerationResult, Progress, RequestRecord
from ..request_state import RequestState, Verdict

OnProgress = Callable[[Progress], None]
"""Called in the thread of `Engine.step`; it should return at once. If it raises, its request is
cancelled."""


def ignore(progress: Progress) -> None:
    """Listen to nothing."""


@frozen(eq=False, kw_only=True)
class Arrival:
    """A request as it was handed in, not checked against the models yet.

    Attributes:
        request_id: identifies it.
        request: None if not even its own values are right.
        seed: that is reported if it is refused.
        prompt_len: tokens of the prompt.
        on_progress: the listener.
        error: why it cannot run; empty if nothing is known to be wrong.
        time: when it came.
    """

    request_id: int
    request: GenerationRequest | None
    seed: int
    prompt_len: int
    on_progress: OnProgress = ignore
    error: str = ""
    time: float = field(factory=perf_counter)

    def refused(self, error: str) -> Progress:
        """The end of a request that cannot be decoded."""
        result = GenerationResult(
            token_ids=(),
            kinds=(),
            text="",
            finish_reason=FinishReason.ERROR,
            status=Status.OK,
            seed=self.seed,
            statistics=AcceptanceStatistics(),
            logprobs=None,
            total_variation=None,
            error=error,
        )
        return Progress(
            request_index=self.request_id,
            token_ids=(),
            kinds=(),
            fragments=(),
            result=result,
            record=record_of(self, result, (), ()),
        )


@define(eq=False, kw_only=True)
class Entry:
    """A request that waits or runs.

    Attributes:
        arrival: how it came.
        state: its tokens, and its slot once it has one.
        num_entered: how many tokens of the prompt the models' caches hold.
        token_times: see `RequestRecord`.
        acceptance: see `RequestRecord`.
    """

    arrival: Arrival
    state: RequestState
    num_entered: int = 0
    token_times: list[tuple[float, int]] = field(factory=list)
    acceptance: list[tuple[int, int]] = field(factory=list)

    @property
    def num_to_enter(self) -> int:
        """How many more tokens of the prompt the caches need; the last one is scored instead."""
        return len(self.state.request.prompt_token_ids) - 1 - self.num_entered

    def advance(self, verdict: Verdict, now: float) -> Progress:
        """Emit what a step decided."""
        progress = self.state.advance(verdict)
        num_emitted = len(progress.token_ids)
        self.acceptance.append((verdict.num_draft_tokens, min(verdict.num_accepted, num_emitted)))
        if num_emitted:
            self.token_times.append((now, num_emitted))
        return self._with_record(progress)

    def cancel(self) -> Progress:
        """End where it stands."""
        return self._with_record(self.state.cancel())

    def fail(self, error: str) -> Progress:
        """End where it stands, and say why."""
        return self._with_record(self.state.fail(error))

    def _with_record(self, progress: Progress) -> Progress:
        if progress.result is None:
            return progress
        times, acceptance = tuple(self.token_times), tuple(self.acceptance)
        return evolve(progress, record=record_of(self.arrival, progress.result, times, acceptance))


def record_of(
    arrival: Arrival,
    result: GenerationResult,
    token_times: tuple[tuple[float, int], ...],
    acceptance: tuple[tuple[int, int], ...],
) -> RequestRecord:
    """The record of a request that ends at this moment."""
    return RequestRecord(
        request_id=arrival.request_id,
        arrival_time=arrival.time,
        first_token_time=token_times[0][0] if token_times else None,
        finish_time=perf_counter(),
        token_times=token_times,
        prompt_len=arrival.prompt_len,
        output_len=len(result.token_ids),
        status=result.finish_reason,
        error=result.error,
        acceptance=acceptance,
    )
