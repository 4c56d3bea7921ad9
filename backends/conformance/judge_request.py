"""One request's tokens held against the oracle, with the near-tie rule.

A difference is excused only if its decision is closer than the tolerance, and after it the backend
must go on as the contract says from there.
"""

import math
from collections.abc import Iterator
from functools import partial

from attrs import frozen

from ...core.batch import PADDING_TOKEN_ID
from .findings import Difference
from .oracle.law import TOLERANCE, Law, margin_of
from .oracle.race import BLOCK_SIZE, Draw
from .oracle.request import RequestOracle


@frozen
class Answer:
    """What a backend returned for one request."""

    token_ids: list[int]
    num_accepted: int
    status: int


def judge_request(oracle: RequestOracle, request: int, answer: Answer) -> list[Difference]:
    """Everything that differs, up to the first difference that is not excused."""
    found: list[Difference] = []
    for judge in (_acceptance, _accepted_tokens, _final_token, _status):
        found += judge(oracle, request, answer)
        if found and not found[-1].excused:
            break
    return found


def _acceptance(oracle: RequestOracle, request: int, answer: Answer) -> Iterator[Difference]:
    got, expected = answer.num_accepted, oracle.num_accepted
    if got == expected:
        return
    row = min(got, expected) if not oracle.rule.takes_last_success else max(got, expected) - 1
    inside = 0 <= got <= oracle.num_draft_tokens
    margin = margin_of(partial(_may_accept, oracle, got)) if inside else math.inf
    yield Difference(
        request,
        row,
        "acceptance",
        f"{expected} accepted",
        f"{got} accepted",
        margin,
        excused=margin <= TOLERANCE,
    )


def _may_accept(oracle: RequestOracle, count: int, tolerance: float) -> bool:
    """Whether a relative change of p and q may make it exactly this many."""
    total = oracle.num_draft_tokens
    possible = [oracle.verdict(row, tolerance) for row in range(total)]
    if oracle.rule.takes_last_success:
        passed = count == 0 or possible[count - 1].accept
        return passed and all(each.reject for each in possible[count:])
    passed = all(each.accept for each in possible[:count])
    return passed and (count == total or possible[count].reject)


def _accepted_tokens(oracle: RequestOracle, request: int, answer: Answer) -> Iterator[Difference]:
    """Accepted tokens are the draft's; behind the final token is padding."""
    count = answer.num_accepted
    emitted = count + (oracle.finals[count] is not None)
    expected = list(answer.token_ids)
    expected[:count] = oracle.view.drafts[:count]
    expected[emitted:] = [PADDING_TOKEN_ID] * (len(expected) - emitted)
    for row, (want, got) in enumerate(zip(expected, answer.token_ids, strict=True)):
        if want != got:
            what = "accepted token" if row < count else "padding"
            yield Difference(request, row, what, str(want), str(got))
            return


def _final_token(oracle: RequestOracle, request: int, answer: Answer) -> Iterator[Difference]:
    row = answer.num_accepted
    draw, got = oracle.finals[row], answer.token_ids[row]
    if draw is None or got == draw.token_id:
        return
    is_bonus = row == oracle.num_draft_tokens
    what = oracle.view.bonus_name if is_bonus else "recovered token"
    margin = margin_of(partial(draw.could_be, got))
    yield Difference(
        request=request,
        row=row,
        decision=f"{what}, {_kind(draw, oracle.view.target_laws[row], got)}",
        expected=str(draw.token_id),
        got=str(got),
        margin=margin,
        excused=margin <= TOLERANCE,
    )


def _kind(draw: Draw, law: Law, got: int) -> str:
    """What made the difference; the row's law tells whether it is a filter's edge."""
    if not 0 <= got < len(draw.law.log_p):
        return "no token at all"
    if law.doubted().any():
        return "filter edge or argmax"
    same_block = got // BLOCK_SIZE == draw.token_id // BLOCK_SIZE
    return "token race" if same_block else "block race"


def _status(oracle: RequestOracle, request: int, answer: Answer) -> Iterator[Difference]:
    expected = oracle.status(answer.num_accepted)
    if answer.status != expected:
        yield Difference(request, -1, "status", repr(expected), str(answer.status))
