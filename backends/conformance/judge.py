"""Compares a backend's results with the oracle's, under the near-tie rule.

A difference is excused only if its decision is closer than the tolerance, and if the backend goes
on from there as the contract says.
"""

import math
from collections.abc import Iterator
from functools import partial
from operator import itemgetter

import numpy as np

from ...core import PADDING_TOKEN_ID, InvalidInputError, Policy, SampleBatch, Strict, VerifyBatch
from ...core.call_memory import check_sample_output, check_verify_output
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.sampling_tensors import SamplingTensors
from ...core.tensor_fields import mapped
from .calls import moved
from .findings import LOGPROB_ORDER, Difference, Findings
from .oracle.law import Law, RowLogprobs, margin_of
from .oracle.race import BLOCK_SIZE, Draw
from .oracle.request import RequestOracle
from .oracle.view import RequestView, split_sample, split_verify

TOTAL_VARIATION_TOLERANCE = 1e-4


def judge_verify(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, output: VerifyOutput
) -> Findings:
    """Compare everything that `Sampler.verify` returned."""
    try:
        check_verify_output(output, batch, params, policy)
    except InvalidInputError as error:
        return _malformed(batch.num_reqs, error)
    return _judge(split_verify(*moved((batch, params))), policy, moved(output))


def judge_sample(batch: SampleBatch, params: SamplingTensors, output: SampleOutput) -> Findings:
    """Compare everything that `Sampler.sample` returned."""
    try:
        check_sample_output(output, batch, params)
    except InvalidInputError as error:
        return _malformed(batch.num_reqs, error)
    drawn = moved(output)
    # A plain draw equals a strict verification of an empty draft.
    verified = VerifyOutput(
        token_ids=drawn.token_ids[:, None],
        num_accepted=drawn.status.new_zeros(batch.num_reqs),
        status=drawn.status,
        total_variation=None,
        logprobs=drawn.logprobs,
    )
    return _judge(split_sample(*moved((batch, params))), Strict(), verified)


def _malformed(num_reqs: int, error: InvalidInputError) -> Findings:
    form = Difference(-1, -1, "form of the output", "that of the contract", str(error))
    return Findings(num_requests=num_reqs, differences=(form,))


def _judge(requests: list[RequestView], policy: Policy, output: VerifyOutput) -> Findings:
    found = Findings()
    for request, given in enumerate(requests):
        answer: VerifyOutput = mapped(output, itemgetter(request))
        found += _judge_request(RequestOracle(given, policy), request, answer)
    return found


def _judge_request(oracle: RequestOracle, request: int, answer: VerifyOutput) -> Findings:
    """Compare one request's results, up to the first difference that is not excused."""
    found: list[Difference] = []
    for judge in (_acceptance, _accepted_tokens, _final_token, _status, _numbers):
        found += judge(oracle, request, answer)
        if found and not found[-1].excused:
            break
    return Findings(num_requests=1, num_decisions=oracle.num_decisions, differences=tuple(found))


def _acceptance(oracle: RequestOracle, request: int, answer: VerifyOutput) -> Iterator[Difference]:
    got, expected = int(answer.num_accepted), oracle.num_accepted
    if got == expected:
        return
    row = min(got, expected) if not oracle.rule.takes_last_success else max(got, expected) - 1
    inside = 0 <= got <= oracle.num_draft_tokens
    margin = margin_of(partial(oracle.may_accept, got)) if inside else math.inf
    wanted, had = f"{expected} accepted", f"{got} accepted"
    yield Difference(request, row, "acceptance", wanted, had, margin)


def _accepted_tokens(
    oracle: RequestOracle, request: int, answer: VerifyOutput
) -> Iterator[Difference]:
    """Check that accepted tokens are the draft's, and that padding follows the final token."""
    count, token_ids = int(answer.num_accepted), answer.token_ids.tolist()
    emitted = count + (oracle.finals[count] is not None)
    expected = [*oracle.view.drafts[:count], *token_ids[count:emitted]]
    expected += [PADDING_TOKEN_ID] * (len(token_ids) - emitted)
    for row, (want, got) in enumerate(zip(expected, token_ids, strict=True)):
        if want != got:
            what = "accepted token" if row < count else "padding"
            yield Difference(request, row, what, str(want), str(got))
            return


def _final_token(oracle: RequestOracle, request: int, answer: VerifyOutput) -> Iterator[Difference]:
    row = int(answer.num_accepted)
    draw, got = oracle.finals[row], int(answer.token_ids[row])
    if draw is None or got == draw.token_id:
        return
    is_bonus = row == oracle.num_draft_tokens
    what = oracle.view.bonus_name if is_bonus else "recovered token"
    decision = f"{what}, {_kind(draw, oracle.view.target_laws[row], got)}"
    margin = margin_of(partial(draw.could_be, got))
    yield Difference(request, row, decision, str(draw.token_id), str(got), margin)


def _kind(draw: Draw, law: Law, got: int) -> str:
    """Name the decision that differs; the row's law tells whether it is a filter's edge."""
    if not 0 <= got < len(draw.law.log_p):
        return "no token at all"
    if law.doubted().any():
        return "filter edge or argmax"
    same_block = got // BLOCK_SIZE == draw.token_id // BLOCK_SIZE
    return "token race" if same_block else "block race"


def _status(oracle: RequestOracle, request: int, answer: VerifyOutput) -> Iterator[Difference]:
    got, expected = int(answer.status), oracle.status(int(answer.num_accepted))
    if got != expected:
        yield Difference(request, -1, "status", repr(expected), str(got))


def _numbers(oracle: RequestOracle, request: int, answer: VerifyOutput) -> Iterator[Difference]:
    token_ids = answer.token_ids.tolist()
    if answer.logprobs is not None:
        for row, token_id in enumerate(token_ids):
            want = oracle.row_logprobs(row) if token_id >= 0 else None
            got = mapped(answer.logprobs, itemgetter(row))
            yield from _judge_logprobs(want, token_id, got, (request, row))
    if answer.total_variation is not None:
        for row, value in enumerate(answer.total_variation.tolist()):
            expected, width = oracle.total_variation(row) if token_ids[row] >= 0 else (0.0, 0.0)
            if not abs(value - expected) <= TOTAL_VARIATION_TOLERANCE + width:
                yield Difference(request, row, "total variation", str(expected), str(value))
                return


def _judge_logprobs(
    want: RowLogprobs | None, token_id: int, got: Logprobs, place: tuple[int, int]
) -> Iterator[Difference]:
    """Judge one place of an output; `want` is None where nothing was emitted."""
    emitted, ids, values = float(got.emitted), got.top_token_ids.tolist(), got.top.tolist()
    if want is None:
        if emitted != -np.inf or set(ids) - {-1} or set(values) - {-np.inf}:
            shown = f"{emitted}, {ids}, {values}"
            yield Difference(*place, "logprobs", "-inf and -1", shown)
        return
    if not want.is_close(token_id, emitted):
        yield Difference(*place, "logprob", str(want.values[token_id]), str(emitted))
    if len(set(ids)) != len(ids) or not all(0 <= each < len(want.values) for each in ids):
        yield Difference(*place, "top token ids", "different tokens", str(ids))
    else:
        yield from _judge_top(want, ids, values, place)


def _judge_top(
    want: RowLogprobs, ids: list[int], values: list[float], place: tuple[int, int]
) -> Iterator[Difference]:
    for token_id, value in zip(ids, values, strict=True):
        if not want.is_close(token_id, value):
            expected = f"{token_id} with {want.values[token_id]}"
            yield Difference(*place, "top logprob", expected, f"{token_id} with {value}")
            return
    if values != sorted(values, reverse=True):
        yield Difference(*place, "top logprobs", "falling ones", str(values))
        return
    # Tokens of probability 0 may come in any order.
    listed = np.array(ids, dtype=np.int64)
    shown = listed[np.maximum(want.values[listed], values) > -np.inf]
    orders = [order[: len(ids)].tolist() for order in want.orders]
    # A token at a filter's very edge shifts all later ones by a rank.
    certain = [want.certain(order)[: len(ids)].tolist() for order in want.orders]
    if shown.tolist() in (*orders, *certain):
        return
    gap, excused = _excuse_of_order(want, want.certain(shown).tolist(), certain)
    yield Difference(*place, LOGPROB_ORDER, str(orders[0]), str(ids), gap, excused=excused)


def _excuse_of_order(
    want: RowLogprobs, shown: list[int], orders: list[list[int]]
) -> tuple[float, bool]:
    """How far apart swapped tokens are at most, and whether rounding may have swapped them.

    Args:
        want: the row's logprobs.
        shown: the backend's certain tokens.
        orders: the certain tokens in each right order.
    """
    swaps = (
        [pair for pair in zip(shown, order, strict=False) if pair[0] != pair[1]] for order in orders
    )
    swapped = min(swaps, key=len)
    gaps = [abs(float(want.values[one] - want.values[other])) for one, other in swapped]
    bounds = [min(want.tolerance(token_id) for token_id in pair) for pair in swapped]
    close = all(0 < g < np.inf and g <= most for g, most in zip(gaps, bounds, strict=True))
    num_missing = len(orders[0]) - len(shown)
    return max(gaps, default=0.0), close and num_missing <= int(want.doubted.sum())
