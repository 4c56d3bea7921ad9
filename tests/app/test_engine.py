"""The engine: requests that come and go get what they would get alone, and end once."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acceptor.app.decode import DecodeStep
from acceptor.app.decoder import Decoder
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.entry import OnProgress
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.engine.schedule import Limits
from acceptor.app.engine.streaming import Streams
from acceptor.app.ngram_drafter import NgramDrafter
from acceptor.app.request import FinishReason, GenerationRequest, GenerationResult, Progress
from acceptor.core import (
    Block,
    InvalidInputError,
    Policy,
    Probabilistic,
    Recipe,
    SamplingParams,
    Status,
    Strict,
)
from kit.soak import Soak
from kit.toy_pair import Pair, TableModel

POLICIES = [Strict(), Strict(coupled=True), Probabilistic(), Block()]
MAX_LEN = 40

recipes = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.4, 1.0]),
    top_p=st.sampled_from([0.7, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    logit_bias=st.sampled_from([{}, {1: 2.0}]),
    draft=st.sampled_from([None, Recipe(temperature=0.7, top_k=4)]),
    seed=st.integers(0, 2**64 - 1),
)
requests = st.builds(
    GenerationRequest,
    prompt_token_ids=st.lists(st.integers(0, 12), min_size=1, max_size=9),
    params=recipes,
    max_tokens=st.integers(1, 12),
    stop=st.lists(st.text("abcdefghijkl", min_size=1, max_size=2), max_size=1),
    num_spec_tokens=st.none() | st.integers(0, 5),
)


def record(action: Callable[[], None]) -> Callable[[], None]:
    """Stands for capturing: runs the step once, then again and again at the same addresses."""
    action()
    return action


arrivals = st.lists(st.tuples(requests, st.integers(0, 12)), min_size=1, max_size=8)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=25, deadline=None)
@given(
    arrivals=arrivals,
    num_slots=st.integers(1, 4),
    prefill_tokens=st.integers(1, 9),
    drafter=st.sampled_from(["model", "ngram"]),
    runner=st.sampled_from([EagerRunner, partial(GraphRunner, record=record)]),
)
def test_a_request_gets_what_it_would_get_alone(
    pair: Pair,
    policy: Policy,
    arrivals: list[tuple[GenerationRequest, int]],
    num_slots: int,
    prefill_tokens: int,
    drafter: str,
    runner: Callable[[DecodeStep], Runner],
) -> None:
    decoder = decoder_of(pair, policy, drafter)
    limits = Limits(num_slots=num_slots, max_len=MAX_LEN, prefill_tokens=prefill_tokens)
    results = serve(Engine.of(evolve(decoder, new_runner=runner), limits), arrivals)
    for place, (request, _) in enumerate(arrivals):
        (alone,) = decoder.generate([request])
        assert results[place] == alone


def decoder_of(pair: Pair, policy: Policy, drafter: str) -> Decoder:
    decoder = pair.decoder(policy, 4, eos_token_ids=[0])
    if drafter == "ngram":
        return evolve(decoder, drafter=NgramDrafter(num_spec_tokens=4))
    return decoder


def serve(
    engine: Engine, arrivals: list[tuple[GenerationRequest, int]]
) -> dict[int, GenerationResult]:
    """Each request comes before the step of its number; results by place in the list."""
    places: dict[int, int] = {}
    results: dict[int, GenerationResult] = {}
    step = 0
    while step <= max(when for _, when in arrivals) or engine.has_unfinished():
        for place, (request, when) in enumerate(arrivals):
            if when == step:
                places[engine.add_request(request)] = place
        for progress in engine.step():
            if progress.result is not None:
                place = places.pop(progress.request_index)
                results[place] = progress.result
        step += 1
    assert not places
    return results


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_looking_up_drafts_keeps_the_law_and_saves_steps(pair: Pair, policy: Policy) -> None:
    request = GenerationRequest(
        prompt_token_ids=[1, 2],
        params=SamplingParams(temperature=0),
        max_tokens=300,
        ignore_eos=True,
    )
    (plain,) = pair.decoder(policy, 0).generate([request])
    (looked_up,) = decoder_of(pair, policy, "ngram").generate([request])
    assert looked_up.token_ids == plain.token_ids
    # A chain of tables repeats itself sooner or later.
    assert looked_up.statistics.num_accepted_tokens > 0


def test_requests_wait_for_a_slot_in_the_order_of_their_arrival(pair: Pair) -> None:
    engine = engine_of(pair, num_slots=2)
    ids = [engine.add_request([1, 2], SamplingParams(seed=i), max_tokens=6) for i in range(7)]
    first_seen, running = [], []
    while engine.has_unfinished():
        progress = engine.step()
        running.append(len(progress))
        first_seen += [p.request_index for p in progress if p.request_index not in first_seen]
    assert first_seen == ids
    assert max(running) == 2


def test_a_long_prompt_enters_between_the_steps_of_others(pair: Pair) -> None:
    pair = Pair.make(max_model_len=4096)
    engine = engine_of(pair, num_slots=2, max_len=4096, prefill_tokens=512)
    short = engine.add_request([1], SamplingParams(seed=1), max_tokens=40)
    long = engine.add_request([2] * 2000, SamplingParams(seed=2), max_tokens=1)
    seen: list[list[int]] = []
    while engine.has_unfinished():
        seen.append([progress.request_index for progress in engine.step()])
    assert seen[:3] == [[short]] * 3
    assert [long in ids for ids in seen].index(True) == 3


@pytest.mark.parametrize(
    ("prompt", "wishes", "message"),
    [
        ([13], {}, "prompt_token_ids: expected a number in [0, 12], got 13"),
        ([], {}, "prompt_token_ids: expected at least one token, got none"),
        ([1] * MAX_LEN, {}, "prompt_token_ids: expected fewer than the 40 tokens"),
        ([1], {"max_tokens": 0}, "max_tokens: expected a number in [1, inf)"),
        ([1], {"num_spec_tokens": -1}, "num_spec_tokens: expected a number"),
        ("text", {}, "prompt: expected token ids without a tokenizer, got 'text'"),
    ],
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


@frozen(eq=False)
class LeakyModel(TableModel):
    """Reads its whole slot, as attention does that multiplies what it masks by zero."""

    def new_cache(self, num_slots: int, max_len: int) -> Tensor:
        return torch.zeros(num_slots, max_len)

    def clear(self, cache: Tensor, slot_id: int) -> None:
        cache[slot_id] = 0

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: Tensor,
        slot_ids: Tensor,
        *,
        last_only: bool = False,
        max_position: int | None = None,  # noqa: ARG002, reads all
    ) -> Tensor:
        cache[slot_ids[:, None], positions] = torch.where(token_ids == 7, torch.nan, 1.0)
        logits = self.table[token_ids] + 0 * cache[slot_ids].sum(1)[:, None, None]
        return logits[:, -1:] if last_only else logits


def test_nothing_that_was_left_in_a_slot_reaches_the_next_request(pair: Pair) -> None:
    leaky = LeakyModel(pair.target.table)
    decoder = evolve(pair, target=leaky, draft=leaky).decoder(Strict(), 3)
    healthy = GenerationRequest(
        prompt_token_ids=[1],
        params=SamplingParams(seed=3, logit_bias={7: -float("inf")}),
        max_tokens=1,
    )
    engine = Engine.of(decoder, Limits(num_slots=1, max_len=MAX_LEN))
    sick = evolve(healthy, prompt_token_ids=[7, 1])
    alone, failed, after = engine.generate([healthy, sick, healthy])
    assert failed.finish_reason is FinishReason.ERROR
    assert failed.status & Status.TARGET_LOGITS_INVALID
    assert after == alone
    assert alone.finish_reason is FinishReason.LENGTH


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


def test_listeners_hear_what_step_returns(pair: Pair) -> None:
    engine, heard = engine_of(pair), list[Progress]()
    engine.add_request([1], SamplingParams(seed=1), max_tokens=7, on_progress=heard.append)
    other = engine.add_request([2], SamplingParams(seed=2), max_tokens=7)
    told = run(engine)
    assert heard == [progress for progress in told if progress.request_index != other]
    assert heard[-1].result is not None


def test_streams_run_together_and_one_left_early_is_cancelled(pair: Pair) -> None:
    engine = engine_of(pair, num_slots=2)
    wanted = [
        GenerationRequest(prompt_token_ids=[1, i], params=SamplingParams(seed=i), max_tokens=9)
        for i in range(5)
    ]

    async def read(request: GenerationRequest) -> list[int]:
        return [token async for p in engine.stream(request) for token in p.token_ids]

    async def leave() -> int:
        async for progress in engine.stream([1, 2], SamplingParams(seed=4), max_tokens=30):
            return len(progress.token_ids)
        return 0

    async def everything() -> list[Any]:
        return await asyncio.gather(*map(read, wanted), leave())

    *texts, left = asyncio.run(everything())
    alone = pair.decoder(Probabilistic(), 4).generate(wanted)
    assert texts == [list(result.token_ids) for result in alone]
    assert 0 < left < 30
    # Its cancellation came in, so nothing is left to do.
    run(engine)
    assert engine.generate(wanted) == alone


def test_a_stream_left_early_hears_nothing_after_its_event_loop_has_closed(pair: Pair) -> None:
    engine, heard = engine_of(pair), list[OnProgress]()

    async def leave() -> None:
        def add(on_progress: OnProgress) -> int:
            heard.append(on_progress)
            return engine.add_request([1], SamplingParams(seed=1), on_progress=on_progress)

        streams = Streams(engine.step, engine.has_unfinished)
        async for _ in streams.follow(add, engine.cancel):
            return

    asyncio.run(leave())
    heard[0](Progress(request_index=0, token_ids=(), kinds=(), fragments=(), result=None))


def test_whoever_waits_for_a_stream_hears_of_a_step_that_raised(pair: Pair) -> None:
    engine = engine_of(evolve(pair, target=evolve(pair.target, table=torch.zeros(97, 12))))

    async def read() -> None:
        async for _ in engine.stream([1], SamplingParams(seed=1)):
            pass

    with pytest.raises(InvalidInputError):
        asyncio.run(read())


def test_two_thousand_requests_end_once_each_and_leave_nothing() -> None:
    soak = Soak(seed=1)
    soak.serve(2000, num_looks=4)
    assert sum(soak.ends.values()) == 2000
    assert (soak.lost, soak.wrong) == (0, [])
    assert min(soak.ends[reason] for reason in ("length", "error", "cancelled")) > 100
    assert max(soak.memory) - min(soak.memory) < 100_000


def engine_of(pair: Pair, **limits: int) -> Engine:
    limits = {"num_slots": 3, "max_len": MAX_LEN} | limits
    return Engine.of(pair.decoder(Probabilistic(), 4), Limits(**limits))


def run(engine: Engine) -> list[Progress]:
    told = []
    while engine.has_unfinished():
        told += engine.step()
    return told
