"""What was observed of one request. Every figure of a benchmark is computed from these.

Times are seconds of one monotonic clock.
"""

from attrs import frozen

from ..request import FinishReason, RequestRecord


@frozen
class ServedStep:
    """One decode step of a request.

    Attributes:
        time: when the tokens were read.
        num_tokens: how many were emitted; 0 only in a last step that failed.
        num_draft_tokens: how many were drafted for it.
        num_accepted: how many of those were emitted.
    """

    time: float
    num_tokens: int
    num_draft_tokens: int
    num_accepted: int


@frozen(kw_only=True)
class ServedRequest:
    """One request from its arrival to its end.

    Attributes:
        category: of its prompt.
        prompt_len: tokens of its prompt.
        arrival_time: when it was handed over.
        finish_time: when it ended.
        succeeded: false if it failed, whatever it emitted before.
        steps: in the order of their times.
    """

    category: str
    prompt_len: int
    arrival_time: float
    finish_time: float
    succeeded: bool
    steps: tuple[ServedStep, ...]

    @classmethod
    def of(cls, record: RequestRecord, category: str) -> "ServedRequest":
        """What an engine recorded of a request that has ended."""
        # Only a last step, one that failed, can have emitted nothing.
        nothing = (record.finish_time, 0)
        num_silent = len(record.acceptance) - len(record.token_times)
        emitted = (*record.token_times, *(nothing for _ in range(num_silent)))
        steps = zip(emitted, record.acceptance, strict=True)
        return cls(
            category=category,
            prompt_len=record.prompt_len,
            arrival_time=record.arrival_time,
            finish_time=record.finish_time,
            succeeded=record.status in (FinishReason.STOP, FinishReason.LENGTH),
            steps=tuple(ServedStep(*tokens, *drafts) for tokens, drafts in steps),
        )

    @property
    def output_len(self) -> int:
        """Tokens emitted."""
        return sum(step.num_tokens for step in self.steps)

    @property
    def time_to_first_token(self) -> float:
        """Seconds from the arrival to the first token; the request must have one."""
        return self.steps[0].time - self.arrival_time

    @property
    def end_to_end(self) -> float:
        """Seconds from the arrival to the end."""
        return self.finish_time - self.arrival_time
