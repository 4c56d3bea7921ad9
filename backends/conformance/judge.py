"""What a backend returned for a whole batch, held against the oracle; refuses to run backends."""

from collections.abc import Iterable, Iterator, Sequence

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .findings import Difference, Findings
from .form import sample_form, verify_form
from .judge_numbers import judge_row_logprobs, judge_total_variation
from .judge_request import Answer, judge_draw, judge_request
from .moved import on_host
from .oracle import RequestOracle, SampleOracle, split_sample, split_verify
from .oracle.logprobs import RowLogprobs
from .oracle.race import Draw


def judge_verify(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, output: VerifyOutput
) -> Findings:
    """Compare everything that `Sampler.verify` returned."""
    malformed = tuple(verify_form(batch, params, policy, output))
    if malformed:
        return Findings(batch.num_reqs, 0, malformed)
    batch, params, output = on_host((batch, params, output))
    oracles = [RequestOracle(inputs, policy) for inputs in split_verify(batch, params)]
    answers = zip(
        output.token_ids.tolist(),
        output.num_accepted.tolist(),
        output.status.tolist(),
        strict=True,
    )
    found: list[Difference] = []
    for request, (oracle, answer) in enumerate(zip(oracles, answers, strict=True)):
        differences = judge_request(oracle, request, Answer(*answer))
        if all(difference.excused for difference in differences):
            differences += _numbers(oracle, request, answer[0], params, output)
        found += differences
    num_tests = sum(oracle.num_tests for oracle in oracles)
    races = _races(oracle.races for oracle in oracles)
    return Findings(batch.num_reqs, num_tests, tuple(found), races)


def _races(draws: Iterable[Sequence[Draw]]) -> frozenset[tuple[int, str, int]]:
    return frozenset(
        (request, draw.race, draw.num_races) for request, some in enumerate(draws) for draw in some
    )


def _numbers(
    oracle: RequestOracle,
    request: int,
    token_ids: list[int],
    params: SamplingTensors,
    output: VerifyOutput,
) -> Iterator[Difference]:
    emitted = [token_id for token_id in token_ids if token_id >= 0]
    if output.logprobs is not None:
        processed = bool(params.logprobs_processed[request])
        for place, token_id in enumerate(token_ids):
            want = None
            if token_id >= 0:
                row, raw = oracle.view.target_rows[place], oracle.inputs.target_logits[place]
                want = RowLogprobs.of(raw, row, oracle.inputs.recipe, processed=processed)
            yield from judge_row_logprobs(want, token_id, output.logprobs, (request, place))
    if output.total_variation is not None:
        caused = output.total_variation[request].tolist()
        yield from judge_total_variation(oracle, request, len(emitted), caused)


def judge_sample(batch: SampleBatch, params: SamplingTensors, output: SampleOutput) -> Findings:
    """Compare everything that `Sampler.sample` returned."""
    malformed = tuple(sample_form(batch, params, output))
    if malformed:
        return Findings(batch.num_reqs, 0, malformed)
    batch, params, output = on_host((batch, params, output))
    answers = zip(output.token_ids.tolist(), output.status.tolist(), strict=True)
    oracles = split_sample(batch, params)
    found: list[Difference] = []
    for request, (oracle, (token_id, status)) in enumerate(zip(oracles, answers, strict=True)):
        found += _judge_row(oracle, request, token_id, status)
        if output.logprobs is not None:
            processed = bool(params.logprobs_processed[request])
            want = None
            if token_id >= 0:
                want = RowLogprobs.of(
                    oracle.raw_logits, oracle.row, oracle.recipe, processed=processed
                )
            found += judge_row_logprobs(want, token_id, output.logprobs, (request, 0))
    races = _races([oracle.draw] if oracle.draw is not None else [] for oracle in oracles)
    return Findings(batch.num_reqs, 0, tuple(found), races)


def _judge_row(
    oracle: SampleOracle, request: int, token_id: int, status: int
) -> Iterator[Difference]:
    if status != oracle.status:
        inf = float("inf")
        yield Difference(request, 0, "status", repr(oracle.status), str(status), inf)
    elif oracle.draw is None:
        if token_id != -1:
            yield Difference(request, 0, "padding", "-1", str(token_id), float("inf"))
    else:
        yield from judge_draw(oracle.draw, oracle.draw.law, request, 0, "drawn token", token_id)
