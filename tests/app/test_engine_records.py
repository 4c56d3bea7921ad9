"""Every request ends once, alone, and with a record that adds up."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.app.decode import DecodeStep
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.engine.schedule import Limits
from acceptor.app.request import FinishReason, GenerationRequest, Progress
from acceptor.core import CheckpointError, InvalidInputError, Probabilistic, SamplingParams
from kit.soak import Soak
from kit.toy_engine import MAX_LEN, engine_of, run
from kit.toy_pair import Pair


@pytest.mark.parametrize(
    ("prompt", "wishes", "message"),
    [
        ([13], {}, "prompt_token_ids: expected a number in [0, 12], got 13"),
        ([], {}, "prompt_token_ids: expected at least one token, got none"),
        ([1] * MAX_LEN, {}, "prompt_token_ids: expected fewer than the 40 tokens"),
        ([1], {"max_tokens": 0}, "max_tokens: expected a number in [1, inf)"),
        ([1], {"num_spec_tokens": -1}, "num_spec_tokens: expected a number"),
        ("text", {}, "prompt: expected token ids without a tokenizer, got 'text'"),
        ("cut \ud83d", {}, "prompt: expected text that UTF-8 can hold, got '\\ud83d' at place 4"),
        (None, {}, "prompt_token_ids: expected several values, got None"),
        (5, {}, "prompt_token_ids: expected several values, got 5"),
        ([1, 2.5], {}, "prompt_token_ids: expected an integer, got 2.5"),
        ([1, True], {}, "prompt_token_ids: expected an integer, got True"),
        (["1"], {}, "prompt_token_ids: expected an integer, got '1'"),
        (torch.tensor([1.0]), {}, "prompt_token_ids: expected an integer, got tensor(1.)"),
        (torch.ones(2, 3), {}, "prompt_token_ids: expected an integer, got tensor([1., 1., 1.])"),
        (torch.tensor(3), {}, "prompt_token_ids: expected several values, got tensor(3)"),
        (torch.tensor([True]), {}, "prompt_token_ids: expected an integer, got tensor(True)"),
        (torch.tensor([[3]]), {}, "prompt_token_ids: expected an integer, got tensor([3])"),
        ([1], {"params": None}, "params: expected SamplingParams, got None"),
        ([1], {"params": {"seed": 1}}, "params: expected SamplingParams, got {'seed': 1}"),
        ([1], {"max_tokens": None}, "max_tokens: expected an integer, got None"),
        ([1], {"stop": None}, "stop: expected several values, got None"),
        ([1], {"stop": [7]}, "stop: expected strings with content, got 7"),
        ([1], {"stop_token_ids": 3}, "stop_token_ids: expected several values, got 3"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_unfit_request_ends_alone(
    pair: Pair, prompt: Any, wishes: dict[str, Any], message: str
) -> None:
    engine = engine_of(pair)
    fit = [engine.add_request([1], SamplingParams(seed=1), max_tokens=5)]
    unfit = engine.add_request(prompt, **wishes)
    fit.append(engine.add_request([1], SamplingParams(seed=1), max_tokens=5))
    ends = {p.request_index: p for p in run(engine) if p.result is not None}
    assert len(ends) == 3
    result, record = ends[unfit].result, ends[unfit].record
    assert result is not None
    assert record is not None
    assert result.finish_reason is record.status is FinishReason.ERROR
    assert result.error.startswith(message)
    assert record.error == result.error
    assert ends[fit[0]].result == ends[fit[1]].result


def test_a_text_on_which_the_tokenizer_fails_ends_alone(pair: Pair) -> None:
    def fail(text: str) -> list[int]:
        raise CheckpointError(f"tokenizer.json: expected token ids for {text}")

    decoder = evolve(pair.decoder(Probabilistic(), 4), encode=fail)
    engine = Engine.of(decoder, Limits(num_slots=2, max_len=MAX_LEN))
    failed, fit = engine.generate(["this", [1]], SamplingParams(seed=1), max_tokens=5)
    assert failed.finish_reason is FinishReason.ERROR
    assert failed.error == "tokenizer.json: expected token ids for this"
    assert fit.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    "of",
    [np.array, torch.tensor, tuple, iter, lambda ids: [np.int32(one) for one in ids]],
    ids=["array", "tensor", "tuple", "iterator", "scalars"],
)
def test_token_ids_are_integers_of_any_kind(pair: Pair, of: Callable[[list[int]], Any]) -> None:
    ids, params = [3, 1, 2], SamplingParams(seed=1)
    (expected,) = engine_of(pair).generate([ids], params, max_tokens=5)
    (got,) = engine_of(pair).generate([of(ids)], params, max_tokens=5)
    assert got == expected
    request = GenerationRequest(prompt_token_ids=of(ids), stop_token_ids=of([7]))
    assert {type(one) for one in (*request.prompt_token_ids, *request.stop_token_ids)} == {int}


def test_a_listener_that_cannot_be_told_is_refused_at_once(pair: Pair) -> None:
    engine = engine_of(pair)
    with pytest.raises(InvalidInputError, match="on_progress: expected a function, got None"):
        engine.add_request([1], on_progress=None)  # type: ignore[arg-type]
    assert not engine.has_unfinished()


def test_a_refused_request_tells_the_seed_that_it_came_with(pair: Pair) -> None:
    engine = engine_of(pair)
    request = GenerationRequest(prompt_token_ids=[99], params=SamplingParams(seed=5))
    by_request, by_params = engine.generate([request, [99]], SamplingParams(seed=7))
    assert (by_request.seed, by_params.seed) == (5, 7)


@settings(max_examples=15, deadline=None)
@given(after=st.integers(0, 12), victim=st.integers(0, 4))
def test_a_cancelled_request_ends_alone_and_keeps_what_it_has(
    pair: Pair, after: int, victim: int
) -> None:
    wanted = [
        GenerationRequest(prompt_token_ids=[1, i], params=SamplingParams(seed=i), max_tokens=9)
        for i in range(5)
    ]
    engine = engine_of(pair, num_slots=2)
    ids = [engine.add_request(request) for request in wanted]
    seen: list[Progress] = []
    for step in range(100):
        if step == after:
            engine.cancel(ids[victim])
            engine.cancel(ids[victim])
        seen += engine.step()
    assert not engine.has_unfinished()
    results = [p.result for p in seen if p.result is not None]
    assert Counter(p.request_index for p in seen if p.result is not None) == Counter(ids)
    undisturbed = pair.decoder(Probabilistic(), 4).generate(wanted)
    for request_id, alone in zip(ids, undisturbed, strict=True):
        (result,) = [p.result for p in seen if p.request_index == request_id and p.result]
        if result.finish_reason is FinishReason.CANCELLED:
            assert request_id == ids[victim]
            assert result.token_ids == alone.token_ids[: len(result.token_ids)]
        else:
            assert result == alone
    assert len(results) == len(ids)


def test_cancelling_the_unknown_and_the_ended_changes_nothing(pair: Pair) -> None:
    engine = engine_of(pair)
    (done,) = [engine.add_request([1], SamplingParams(seed=1), max_tokens=2)]
    before = run(engine)
    engine.cancel(done)
    engine.cancel(12345)
    assert not engine.has_unfinished()
    assert engine.step() == []
    (result,) = engine.generate([[1]], SamplingParams(seed=1), max_tokens=2)
    assert [p.result for p in before if p.result is not None] == [result]


def test_records_add_up(pair: Pair) -> None:
    engine = engine_of(pair, num_slots=2)
    for i in range(5):
        engine.add_request([1] * (i + 1), SamplingParams(seed=i), max_tokens=3 * i + 1)
    for progress in run(engine):
        assert (progress.record is None) == (progress.result is None)
        if progress.record is None or progress.result is None:
            continue
        record, result = progress.record, progress.result
        assert record.prompt_len == record.request_id + 1
        assert record.output_len == sum(n for _, n in record.token_times) == len(result.token_ids)
        times = [time for time, _ in record.token_times]
        assert [record.arrival_time, *times, record.finish_time] == sorted(
            [record.arrival_time, *times, record.finish_time]
        )
        assert record.first_token_time == times[0]
        drafts = [drafted for drafted, _ in record.acceptance if drafted]
        assert len(drafts) == result.statistics.num_drafts
        assert sum(drafts) == result.statistics.num_draft_tokens
        accepted = sum(accepted for _, accepted in record.acceptance)
        assert accepted == result.statistics.num_accepted_tokens


def record(action: Callable[[], None]) -> Callable[[], None]:
    """Stands for capturing."""
    action()
    return action


@pytest.mark.parametrize(
    "new_runner", [EagerRunner, partial(GraphRunner, record=record)], ids=["eager", "graphs"]
)
def test_two_thousand_requests_end_once_each_and_leave_nothing(
    new_runner: Callable[[DecodeStep], Runner],
) -> None:
    soak = Soak(seed=1, new_runner=new_runner)
    soak.serve(2000, num_looks=4)
    assert sum(soak.ends.values()) == 2000
    assert (soak.lost, soak.wrong) == (0, [])
    assert min(soak.ends[reason] for reason in ("length", "error", "cancelled")) > 100
    assert max(soak.memory) - min(soak.memory) < 100_000
