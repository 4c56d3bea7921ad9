"""The engine: requests that come and go get what they would get alone."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acceptor.app.decode import DecodeStep
from acceptor.app.decoder import Decoder
from acceptor.app.engine import captured_step
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.runner import AheadRunner, EagerRunner, Runner
from acceptor.app.engine.schedule import Limits
from acceptor.app.ngram_drafter import NgramDrafter
from acceptor.app.request import FinishReason, GenerationRequest, GenerationResult
from acceptor.app.request_state import Verdict
from acceptor.app.verdicts import read_verdicts
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    Recipe,
    SamplingParams,
    Status,
    Strict,
)
from kit.toy_engine import MAX_LEN, engine_of
from kit.toy_pair import Pair, TableModel

POLICIES = [Strict(), Strict(coupled=True), Probabilistic(), Block()]

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


@pytest.mark.parametrize("repetition_penalty", [1.0, 1.2], ids=["not read", "not acted on"])
def test_a_step_that_has_begun_counts_for_those_who_are_still_there(
    pair: Pair, repetition_penalty: float
) -> None:
    """Someone is cancelled, and someone comes, while the device is a step ahead of the host."""
    requests = [
        GenerationRequest(
            prompt_token_ids=[seed + 1, 2],
            params=SamplingParams(seed=seed, repetition_penalty=repetition_penalty),
            max_tokens=24,
            ignore_eos=True,
        )
        for seed in range(3)
    ]
    decoder = pair.decoder(Probabilistic(), 3)
    runner = partial(GraphRunner, record=record)
    engine = Engine.of(evolve(decoder, new_runner=runner), Limits(num_slots=2, max_len=MAX_LEN))
    assert isinstance(engine.loop.runner, AheadRunner)
    first, other = (engine.add_request(request) for request in requests[:2])
    results: dict[int, GenerationResult] = {}
    steps = 0
    while engine.has_unfinished():
        if steps == 2:
            assert engine.loop.has_begun
            engine.cancel(other)
            last = engine.add_request(requests[2])
        for progress in engine.step():
            if progress.result is not None:
                results[progress.request_index] = progress.result
        steps += 1
    alone = decoder.generate(requests)
    assert [results[first], results[last]] == [alone[0], alone[2]]
    assert results[other].finish_reason == FinishReason.CANCELLED
    assert results[other].token_ids == alone[1].token_ids[: len(results[other].token_ids)]


@pytest.mark.parametrize("num_spec_tokens", [0, 3])
def test_a_step_begins_before_the_one_before_it_is_read(
    pair: Pair, num_spec_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two requests ends with a stop token; what it got behind that is dropped."""
    log: list[str] = []

    def record_with_log(action: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            log.append("begin")
            action()

        action()
        return replay

    def read_with_log(*args: Any) -> list[Verdict]:
        log.append("read")
        return read_verdicts(*args)

    decoder = pair.decoder(Strict(), num_spec_tokens)
    requests = [
        GenerationRequest(
            prompt_token_ids=[seed + 1], params=SamplingParams(seed=seed), max_tokens=30
        )
        for seed in range(2)
    ]
    stop = decoder.generate(requests)[0].token_ids[15]
    requests[0] = evolve(requests[0], stop_token_ids=(stop,))
    alone = [decoder.generate([request])[0] for request in requests]
    monkeypatch.setattr(captured_step, "read_verdicts", read_with_log)
    runner = partial(GraphRunner, record=record_with_log)
    engine = Engine.of(evolve(decoder, new_runner=runner), Limits(num_slots=2, max_len=MAX_LEN))
    assert engine.generate(requests) == alone
    assert alone[0].finish_reason is FinishReason.STOP
    assert log[:7] == ["begin", "begin", "read", "begin", "read", "begin", "read"]
    assert log.count("begin") == log.count("read")


def test_a_step_that_assumed_what_did_not_come_is_dropped(pair: Pair) -> None:
    """Logits of one request become NaN while the device is a step ahead."""
    leaky = LeakyModel(pair.target.table)
    decoder = evolve(pair, target=leaky).decoder(Strict(), 0)
    requests = [
        GenerationRequest(
            prompt_token_ids=[1],
            params=SamplingParams(seed=seed, logit_bias={7: bias}),
            max_tokens=20,
        )
        for seed, bias in enumerate([-float("inf"), 1.0])
    ]
    alone = [decoder.generate([request])[0] for request in requests]
    runner = partial(GraphRunner, record=record)
    engine = Engine.of(evolve(decoder, new_runner=runner), Limits(num_slots=2, max_len=MAX_LEN))
    assert engine.generate(requests) == alone
    assert [one.finish_reason for one in alone] == [FinishReason.LENGTH, FinishReason.ERROR]
    assert len(alone[1].token_ids) > 1


def test_a_step_that_was_interrupted_is_run_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives while the host waits for a step, and the device is one ahead."""
    num_read = [0]

    def interrupted_once(*args: Any) -> list[Verdict]:
        num_read[0] += 1
        if num_read[0] == 3:
            raise KeyboardInterrupt
        return read_verdicts(*args)

    monkeypatch.setattr(captured_step, "read_verdicts", interrupted_once)
    decoder = pair.decoder(Probabilistic(), 3)
    requests = [
        GenerationRequest(
            prompt_token_ids=[seed + 1],
            params=SamplingParams(seed=seed),
            max_tokens=24,
            ignore_eos=True,
        )
        for seed in range(2)
    ]
    runner = partial(GraphRunner, record=record)
    engine = Engine.of(evolve(decoder, new_runner=runner), Limits(num_slots=2, max_len=MAX_LEN))
    for request in requests:
        engine.add_request(request)
    results = list[GenerationResult]()
    while engine.has_unfinished():
        with suppress(KeyboardInterrupt):
            results += [one.result for one in engine.step() if one.result is not None]
    assert num_read[0] > 3
    key = attrgetter("token_ids")
    assert sorted(results, key=key) == sorted(decoder.generate(requests), key=key)
