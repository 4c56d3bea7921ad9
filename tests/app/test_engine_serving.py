"""The engine: requests that come and go get their results as if alone, and each ends once."""

import gc
import logging
import tracemalloc
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.app.decode import DecodeStep
from acceptor.app.decoder import Decoder
from acceptor.app.drafter import NgramDrafter
from acceptor.app.engine import cuda_graphs
from acceptor.app.engine.capture import Record
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.request import FinishReason, GenerationRequest, GenerationResult
from acceptor.core import Block, Policy, Probabilistic, SamplingParams, Status, Strict
from kit.toy_pair import MAX_LEN, LeakyModel, Pair, engine_of, engine_with, record, run
from kit.toy_requests import ask, requests
from lab.soak.load import Soak, bundled_pair, few_grammars

NewRunner = Callable[[DecodeStep], Runner]
GRAPHS = partial(GraphRunner, record=record)
arrivals = st.lists(st.tuples(requests(max_tokens=12), st.integers(0, 12)), min_size=1, max_size=8)
each_policy = pytest.mark.parametrize(
    "policy", [Strict(), Strict(coupled=True), Probabilistic(), Block()]
)


@each_policy
@settings(max_examples=12)
@given(
    arrivals=arrivals,
    limits=st.builds(
        partial(Limits, max_len=MAX_LEN),
        num_slots=st.integers(1, 4),
        prefill_tokens=st.integers(1, 9),
    ),
    drafter=st.sampled_from(["model", "ngram"]),
    new_runner=st.sampled_from([EagerRunner, GRAPHS]),
)
def test_a_request_gets_what_it_would_get_alone(
    pair: Pair,
    policy: Policy,
    arrivals: list[tuple[GenerationRequest, int]],
    limits: Limits,
    drafter: str,
    new_runner: NewRunner,
) -> None:
    decoder = decoder_of(pair, policy, drafter)
    results = serve(Engine.of(evolve(decoder, new_runner=new_runner), limits), arrivals)
    for place, (request, _) in enumerate(arrivals):
        assert [results[place]] == decoder.generate([request])


def decoder_of(pair: Pair, policy: Policy, drafter: str) -> Decoder:
    decoder = pair.decoder(policy, 4, eos_token_ids=[0])
    if drafter == "ngram":
        return evolve(decoder, drafter=NgramDrafter(num_spec_tokens=4))
    return decoder


def serve(
    engine: Engine, arrivals: list[tuple[GenerationRequest, int]]
) -> dict[int, GenerationResult]:
    """Serve requests, each added before the step of its number; results by place in the list."""
    places: dict[int, int] = {}
    results: dict[int, GenerationResult] = {}
    step = 0
    while step <= max(when for _, when in arrivals) or engine.has_unfinished():
        for place, (request, when) in enumerate(arrivals):
            if when == step:
                places[engine.add_request(request)] = place
        for progress in engine.step():
            if progress.result is not None:
                results[places.pop(progress.request_index)] = progress.result
        step += 1
    assert not places
    return results


def assert_whole(soak: Soak, num_requests: int) -> None:
    assert sum(soak.ends.values()) == num_requests
    assert (soak.ends["lost"], soak.num_unfinished, soak.wrong) == (0, 0, [])
    ways = ("length", "error", "cancelled", "not awaited")
    assert min(soak.ends[way] for way in ways) > num_requests // 20
    assert min(soak.masked[way] for way in ways) >= num_requests // 100


def test_hundreds_of_requests_end_once_each_and_leave_nothing(
    pair: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m lab.soak` serves many more."""
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS", 8)
    decoder = evolve(pair.decoder(Strict(), 4), new_runner=GRAPHS)
    soak = Soak(decoder, num_slots=8, num_different=30, seed=1)
    soak.serve(60, num_looks=1)
    tracemalloc.start()
    memory = []
    for _ in range(2):
        soak.serve(80, num_looks=1)
        gc.collect()
        memory.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert memory[1] - memory[0] < 200_000
    assert_whole(soak, 220)


def test_the_bundled_pair_serves_consumers_of_every_kind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    wired = bundled_pair()
    grammars = few_grammars(wired) if find_spec("xgrammar") else []
    soak = Soak(wired.decoder, num_slots=32, num_different=40, grammars=grammars)
    soak.serve(100, num_looks=1)
    assert soak.texts["broken"] > 3
    assert_whole(soak, 100)


def test_requests_wait_for_a_slot_in_the_order_of_their_arrival(pair: Pair) -> None:
    engine = engine_of(pair, num_slots=2)
    ids = [engine.add_request(ask(1, 2, seed=seed, max_tokens=6)) for seed in range(7)]
    first_seen, running = [], []
    while engine.has_unfinished():
        progress = engine.step()
        running.append(len(progress))
        first_seen += [p.request_index for p in progress if p.request_index not in first_seen]
    assert first_seen == ids
    assert max(running) == 2


def test_a_long_prompt_enters_between_the_steps_of_others() -> None:
    engine = engine_of(Pair.make(max_model_len=4096), num_slots=2, max_len=4096, prefill_tokens=512)
    short = engine.add_request(ask(1, seed=1, max_tokens=40))
    long = engine.add_request(ask(*[2] * 2000, seed=2, max_tokens=1))
    seen: list[list[int]] = []
    while engine.has_unfinished():
        seen.append([progress.request_index for progress in engine.step()])
    assert seen[:3] == [[short]] * 3
    assert [long in ids for ids in seen].index(True) == 3


def test_nothing_that_was_left_in_a_slot_reaches_the_next_request(pair: Pair) -> None:
    leaky = LeakyModel(pair.target.table)
    decoder = evolve(pair, target=leaky, draft=leaky).decoder(Strict(), 3)
    healthy = ask(1, seed=3, logit_bias={7: -float("inf")}, max_tokens=1)
    engine = Engine.of(decoder, Limits(num_slots=1, max_len=MAX_LEN))
    sick = evolve(healthy, prompt_token_ids=[7, 1])
    alone, failed, after = engine.generate([healthy, sick, healthy])
    assert failed.finish_reason is FinishReason.ERROR
    assert failed.status & Status.TARGET_LOGITS_INVALID
    assert after == alone
    assert alone.finish_reason is FinishReason.LENGTH


@settings(max_examples=30)
@given(
    after=st.integers(0, 12),
    victim=st.integers(0, 4),
    penalty=st.sampled_from([1.0, 1.2]),
    recorded=st.sampled_from([None, record]),
)
def test_a_cancelled_request_ends_alone_and_keeps_what_it_has(
    pair: Pair, after: int, victim: int, penalty: float, recorded: Record | None
) -> None:
    """A recorded step may have begun by then; without penalties the device is a step ahead."""
    wanted = [ask(1, s, seed=s, repetition_penalty=penalty, max_tokens=16) for s in range(5)]
    engine = engine_with(pair.decoder(Probabilistic(), 4), recorded, num_slots=2)
    ids = [engine.add_request(request) for request in wanted]
    ends = list[tuple[int, GenerationResult]]()
    for step in range(100):
        if step == after:
            engine.cancel(ids[victim])
            engine.cancel(ids[victim])
        ends += [(p.request_index, p.result) for p in engine.step() if p.result is not None]
    assert not engine.has_unfinished()
    assert Counter(request_id for request_id, _ in ends) == Counter(ids)
    undisturbed = pair.decoder(Probabilistic(), 4).generate(wanted)
    for request_id, result in ends:
        alone = undisturbed[ids.index(request_id)]
        if result.finish_reason is FinishReason.CANCELLED:
            assert request_id == ids[victim]
            assert result.token_ids == alone.token_ids[: len(result.token_ids)]
        else:
            assert result == alone


def test_records_add_up(pair: Pair) -> None:
    engine = engine_of(pair, num_slots=2)
    for seed in range(5):
        engine.add_request([1] * (seed + 1), SamplingParams(seed=seed), max_tokens=3 * seed + 1)
    for progress in run(engine):
        assert (progress.record is None) == (progress.result is None)
        if progress.record is None or progress.result is None:
            continue
        record, result = progress.record, progress.result
        assert record.prompt_len == record.request_id + 1
        assert record.output_len == sum(n for _, n in record.token_times) == len(result.token_ids)
        times = [record.arrival_time, *(time for time, _ in record.token_times), record.finish_time]
        assert times == sorted(times)
        assert record.first_token_time == times[1]
        drafts = [drafted for drafted, _ in record.acceptance if drafted]
        assert len(drafts) == result.statistics.num_drafts
        assert sum(drafts) == result.statistics.num_draft_tokens
        accepted = sum(accepted for _, accepted in record.acceptance)
        assert accepted == result.statistics.num_accepted_tokens
