"""What a backend returned for a whole batch, held against the oracle."""

from collections.abc import Callable, Iterator

import numpy as np

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import check_sample_output, check_verify_output
from ...core.errors import InvalidInputError
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .calls import on_host
from .findings import LOGPROB_ORDER, Difference, Findings
from .judge_request import Answer, judge_draw, judge_request
from .oracle import RequestOracle, RowLogprobs, SampleOracle, split_sample, split_verify

TOTAL_VARIATION_TOLERANCE = 1e-4


def judge_verify(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, output: VerifyOutput
) -> Findings:
    """Compare everything that `Sampler.verify` returned."""
    malformed = _malformed(lambda: check_verify_output(output, batch, params, policy))
    if malformed:
        return Findings(batch.num_reqs, 0, malformed)
    batch, params, output = on_host((batch, params, output))
    oracles = [RequestOracle(inputs, policy) for inputs in split_verify(batch, params)]
    columns = (output.token_ids.tolist(), output.num_accepted.tolist(), output.status.tolist())
    found: list[Difference] = []
    for request, (oracle, *answer) in enumerate(zip(oracles, *columns, strict=True)):
        differences = judge_request(oracle, request, Answer(*answer))
        if all(difference.excused for difference in differences):
            differences += _numbers(oracle, request, params, output)
        found += differences
    return Findings(batch.num_reqs, sum(o.num_decisions for o in oracles), tuple(found))


def _numbers(
    oracle: RequestOracle, request: int, params: SamplingTensors, output: VerifyOutput
) -> Iterator[Difference]:
    token_ids = output.token_ids[request].tolist()
    if output.logprobs is not None:
        processed = bool(params.logprobs_processed[request])
        for place, token_id in enumerate(token_ids):
            want = oracle.row_logprobs(place, processed=processed) if token_id >= 0 else None
            yield from _judge_logprobs(want, token_id, output.logprobs, (request, place))
    if output.total_variation is not None:
        emitted = [token_id for token_id in token_ids if token_id >= 0]
        caused = output.total_variation[request].tolist()
        yield from _judge_total_variation(oracle, request, len(emitted), caused)


def judge_sample(batch: SampleBatch, params: SamplingTensors, output: SampleOutput) -> Findings:
    """Compare everything that `Sampler.sample` returned."""
    malformed = _malformed(lambda: check_sample_output(output, batch, params))
    if malformed:
        return Findings(batch.num_reqs, 0, malformed)
    batch, params, output = on_host((batch, params, output))
    oracles = split_sample(batch, params)
    columns = (output.token_ids.tolist(), output.status.tolist())
    found: list[Difference] = []
    for request, (oracle, token_id, status) in enumerate(zip(oracles, *columns, strict=True)):
        found += _judge_row(oracle, request, token_id, status)
        if output.logprobs is not None:
            processed = bool(params.logprobs_processed[request])
            want = oracle.row_logprobs(processed=processed) if token_id >= 0 else None
            found += _judge_logprobs(want, token_id, output.logprobs, (request, 0))
    num_races = sum(oracle.draw.num_races for oracle in oracles if oracle.draw is not None)
    return Findings(batch.num_reqs, num_races, tuple(found))


def _judge_row(
    oracle: SampleOracle, request: int, token_id: int, status: int
) -> Iterator[Difference]:
    if status != oracle.status:
        yield _difference((request, 0), "status", repr(oracle.status), str(status))
    elif oracle.draw is not None:
        yield from judge_draw(oracle.draw, oracle.draw.law, request, 0, "drawn token", token_id)
    elif token_id != -1:
        yield _difference((request, 0), "padding", "-1", str(token_id))


def _judge_logprobs(
    want: RowLogprobs | None, token_id: int, got: Logprobs, place: tuple[int, int]
) -> Iterator[Difference]:
    """One place of an output; `want` is None where nothing was emitted."""
    emitted = float(got.emitted[place])
    ids, values = got.top_token_ids[place].tolist(), got.top[place].tolist()
    if want is None:
        if emitted != -np.inf or set(ids) - {-1} or set(values) - {-np.inf}:
            yield _difference(place, "logprobs", "-inf and -1", f"{emitted}, {ids}, {values}")
        return
    if not want.is_close(token_id, emitted):
        yield _difference(place, "logprob", str(want.values[token_id]), str(emitted))
    if len(set(ids)) != len(ids) or not all(0 <= each < len(want.values) for each in ids):
        yield _difference(place, "top token ids", "different tokens", str(ids))
    else:
        yield from _judge_order(want, ids, values, place)


def _judge_order(
    want: RowLogprobs, ids: list[int], values: list[float], place: tuple[int, int]
) -> Iterator[Difference]:
    order = want.most_likely
    for token_id, value in zip(ids, values, strict=True):
        if not want.is_close(token_id, value):
            expected = f"{token_id} with {want.values[token_id]}"
            yield _difference(place, "top logprob", expected, f"{token_id} with {value}")
            return
    if ids == order[: len(ids)]:
        return
    # A token that a filter keeps or cuts by a hair moves all later ones by a rank.
    certain = [token_id for token_id in ids if not want.doubted[token_id]]
    due = [token_id for token_id in order if not want.doubted[token_id]]
    pairs = zip(certain, due, strict=False)
    swapped = [pair for pair in pairs if pair[0] != pair[1] and not want.are_level(*pair)]
    if not swapped and len(certain) == len(ids):
        return
    gaps = [want.gap(*pair) for pair in swapped]
    bounds = [min(want.tolerance(token_id) for token_id in pair) for pair in swapped]
    excused = all(0 < g < np.inf and g <= most for g, most in zip(gaps, bounds, strict=True))
    expected, gap = str(order[: len(ids)]), max(gaps, default=0.0)
    yield Difference(*place, LOGPROB_ORDER, expected, str(ids), gap, excused=excused)


def _judge_total_variation(
    oracle: RequestOracle, request: int, num_tokens: int, got: list[float]
) -> Iterator[Difference]:
    """One request's row of `VerifyOutput.total_variation`."""
    for row, value in enumerate(got):
        expected = 0.0 if row >= num_tokens else oracle.total_variation(row)
        error = abs(value - expected)
        if error <= TOTAL_VARIATION_TOLERANCE:
            continue
        width = 0.0 if row >= num_tokens else oracle.total_variation_width(row)
        if not error <= TOTAL_VARIATION_TOLERANCE + width:
            yield _difference((request, row), "total variation", str(expected), str(value))
            return


def _malformed(check: Callable[[], None]) -> tuple[Difference, ...]:
    try:
        check()
    except InvalidInputError as error:
        return (_difference((-1, -1), "form of the output", "that of the contract", str(error)),)
    return ()


def _difference(place: tuple[int, int], what: str, expected: str, got: str) -> Difference:
    return Difference(*place, what, expected, got, float("inf"))
