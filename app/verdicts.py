"""What a step decided, read back from the device once and told apart by request.

This module refuses to act on it; see `acceptor.app.request_state`.
"""

from collections.abc import Iterable
from itertools import repeat

from attrs import evolve

from ..core.batch import PADDING_TOKEN_ID
from ..core.output import Logprobs, Status, VerifyOutput
from .drafter import Draft
from .request import TokenLogprobs
from .request_state import Verdict

RequestLogprobs = list[TokenLogprobs]


def read_verdicts(draft: Draft, output: VerifyOutput) -> list[Verdict]:
    """One verdict per request; waits for the device."""
    variation = output.total_variation
    requests = zip(
        draft.token_ids.tolist(),
        output.token_ids.tolist(),
        output.num_accepted.tolist(),
        output.status.tolist(),
        repeat(()) if output.logprobs is None else _read_logprobs(output.logprobs),
        repeat(()) if variation is None else variation.tolist(),
        strict=False,
    )
    verdicts = [
        Verdict(
            token_ids=token_ids[: _num_before_padding(token_ids)],
            num_draft_tokens=_num_before_padding(draft_token_ids),
            num_accepted=num_accepted,
            status=Status(status),
            logprobs=logprobs,
            total_variation=total_variation,
        )
        for draft_token_ids, token_ids, num_accepted, status, logprobs, total_variation in requests
    ]
    return [
        _stop_where_draft_broke_off(verdict, status)
        for verdict, status in zip(verdicts, draft.status.tolist(), strict=True)
    ]


def _stop_where_draft_broke_off(verdict: Verdict, draft_status: list[int]) -> Verdict:
    # The sampler saw a shorter draft and went on behind it; the request must stop there instead.
    place = verdict.num_draft_tokens
    broke_off = Status(draft_status[place] if place < len(draft_status) else Status.OK)
    if not broke_off or verdict.num_accepted < place:
        return verdict
    return evolve(verdict, token_ids=verdict.token_ids[:place], status=verdict.status | broke_off)


def _num_before_padding(token_ids: list[int]) -> int:
    return token_ids.index(PADDING_TOKEN_ID) if PADDING_TOKEN_ID in token_ids else len(token_ids)


def _read_logprobs(logprobs: Logprobs) -> Iterable[RequestLogprobs]:
    requests = zip(
        logprobs.emitted.tolist(),
        logprobs.top_token_ids.tolist(),
        logprobs.top.tolist(),
        strict=True,
    )
    return [
        [
            TokenLogprobs(emitted, tuple(zip(token_ids, values, strict=True)))
            for emitted, token_ids, values in zip(*request, strict=True)
        ]
        for request in requests
    ]
