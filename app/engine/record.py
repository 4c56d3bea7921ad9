"""When things happened to a request: what a benchmark makes its figures of.

All times are seconds of `time.perf_counter`. This module refuses to aggregate.
"""

from attrs import frozen

from ..request import FinishReason


@frozen(kw_only=True)
class RequestRecord:
    """The times and counts of a request that has ended, however it ended.

    Attributes:
        request_id: as `Engine.add_request` returned it.
        arrival_time: when it was added.
        first_token_time: when the host had its first token; None if it never got one.
        finish_time: when it ended.
        token_times: for each step that emitted something, when the host had the tokens and how many
            they were; the counts add up to `output_len`.
        prompt_len: tokens of the prompt.
        output_len: emitted tokens.
        status: how it ended.
        error: what was wrong, one sentence; empty unless `status` is `FinishReason.ERROR`.
        acceptance: for each decode step of the request (num_draft_tokens, num_accepted), without
            the final token; (0, 0) for a step without drafts. Accepted tokens behind a stop are not
            counted, as they are not emitted.
    """

    request_id: int
    arrival_time: float
    first_token_time: float | None
    finish_time: float
    token_times: tuple[tuple[float, int], ...]
    prompt_len: int
    output_len: int
    status: FinishReason
    error: str
    acceptance: tuple[tuple[int, int], ...]
