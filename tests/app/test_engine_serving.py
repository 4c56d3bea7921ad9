"""The engine: requests that come and go get what they would get alone."""

from collections.abc import Callable
from functools import partial

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.app.decode import DecodeStep
from acceptor.app.decoder import Decoder
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.engine.schedule import Limits
from acceptor.app.ngram_drafter import NgramDrafter
from acceptor.app.request import FinishReason, GenerationRequest, GenerationResult
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    Recipe,
    SamplingParams,
    Status,
    Strict,
)
from kit.toy_engine import MAX_LEN, LeakyModel, engine_of, record
from kit.toy_pair import Pair

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
