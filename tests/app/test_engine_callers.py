"""An engine's callers: invalid requests, listeners, streams."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits
from acceptor.app.request import FinishReason, GenerationRequest, OnProgress, Progress
from acceptor.core import CheckpointError, InvalidInputError, Probabilistic, SamplingParams
from kit.toy_pair import MAX_LEN, Pair, engine_of, run
from kit.toy_requests import ask

BIASED = {"params": SamplingParams(logit_bias={13: 1.0})}


@pytest.mark.parametrize(
    ("prompt", "fields", "message"),
    [
        ([13], {}, "prompt_token_ids: expected a number in [0, 12], got 13"),
        ([1] * MAX_LEN, {}, "prompt: expected fewer than the 40 tokens"),
        ([1], {"num_spec_tokens": -1}, "num_spec_tokens: expected a number"),
        ("text", {}, "prompt: expected token ids without a tokenizer, got 'text'"),
        ("cut \ud83d", {}, "prompt: expected text that UTF-8 can hold, got '\\ud83d' at place 4"),
        ([1, 2.5], {}, "prompt_token_ids: expected an integer, got 2.5"),
        (torch.tensor([1.0]), {}, "prompt_token_ids: expected an integer, got tensor(1.)"),
        (torch.tensor([True]), {}, "prompt_token_ids: expected an integer, got tensor(True)"),
        ([1], {"params": None}, "params: expected SamplingParams, got None"),
        ([1], BIASED, "params.logit_bias: token id: expected a number in [0, 12], got 13"),
        ([1], {"params": SamplingParams(logprobs=14)}, "params.logprobs: expected a number in [0,"),
        ([1], {"ignore_eos": "no"}, "ignore_eos: expected true or false, got 'no'"),
        ([1], {"stop": None}, "stop: expected several values, got None"),
        ([1], {"stop": [""]}, "stop: expected strings with content, got ''"),
        ([1], {"stop_token_ids": ["a"]}, "stop_token_ids: expected an integer, got 'a'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unfit_requests(pair: Pair, prompt: Any, fields: dict[str, Any], message: str) -> None:
    engine, fit = engine_of(pair), ask(1, seed=1, max_tokens=5)
    before, unfit = engine.add_request(fit), engine.add_request(prompt, **fields)
    after = engine.add_request(fit)
    ends = {p.request_index: p for p in run(engine) if p.result is not None}
    assert ends.keys() == {before, unfit, after}
    result, record = ends[unfit].result, ends[unfit].record
    assert result is not None
    assert record is not None
    assert result.finish_reason is record.status is FinishReason.ERROR
    assert result.error.startswith(message)
    assert record.error == result.error
    assert ends[before].result == ends[after].result


def test_one_text_is_not_several_prompts(pair: Pair) -> None:
    with pytest.raises(InvalidInputError, match="prompts: expected several, got 'text'"):
        engine_of(pair).generate("text")


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
    expected, got = engine_of(pair).generate([ids, of(ids)], params, max_tokens=5)
    assert got == expected
    request = GenerationRequest(prompt_token_ids=of(ids), stop_token_ids=of([7]))
    assert {type(one) for one in (*request.prompt_token_ids, *request.stop_token_ids)} == {int}


def test_a_refused_request_tells_the_seed_that_it_came_with(pair: Pair) -> None:
    by_request, by_params = engine_of(pair).generate(
        [ask(99, seed=5), [99]], SamplingParams(seed=7)
    )
    assert (by_request.seed, by_params.seed) == (5, 7)


def test_a_listener_that_cannot_be_told_is_refused_at_once(pair: Pair) -> None:
    engine = engine_of(pair)
    with pytest.raises(InvalidInputError, match="on_progress: expected a function, got None"):
        engine.add_request([1], on_progress=None)  # type: ignore[arg-type]
    assert not engine.has_unfinished()


def test_listeners_hear_what_step_returns(pair: Pair) -> None:
    engine, heard = engine_of(pair), list[Progress]()
    engine.add_request(ask(1, seed=1, max_tokens=7), on_progress=heard.append)
    other = engine.add_request(ask(2, seed=2, max_tokens=7))
    told = run(engine)
    assert heard == [progress for progress in told if progress.request_index != other]
    assert heard[-1].result is not None


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("not\nup to it"), "ValueError: not up to it"),
        (WordlessError(), "WordlessError"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
    ids=["words", "no words", "no exception"],
)
def test_a_listener_that_raises_ends_its_own_request(
    pair: Pair, caplog: pytest.LogCaptureFixture, error: BaseException, said: str
) -> None:
    engine, fit = engine_of(pair), ask(1, seed=1, max_tokens=9)
    heard = list[Progress]()

    def listen(progress: Progress) -> None:
        heard.append(progress)
        raise error

    bad = engine.add_request(fit, on_progress=listen)
    good = engine.add_request(fit)
    ends = {p.request_index: p.result for p in run(engine) if p.result is not None}
    assert ends.keys() == {bad, good}
    assert ends[bad] == heard[-1].result
    assert ends[bad].finish_reason is FinishReason.CANCELLED
    assert ends[good] == engine.generate([fit])[0]
    assert caplog.messages[0].startswith(f"request 0 is cancelled: on_progress raised {said}")


def test_an_interrupt_in_a_listener_loses_nothing(pair: Pair) -> None:
    engine, fit = engine_of(pair), ask(1, seed=1, max_tokens=9)
    interrupts = iter([KeyboardInterrupt] * 2)

    def listen(_: Progress) -> None:
        for interrupt in interrupts:
            raise interrupt

    ids = [engine.add_request(fit, on_progress=one) for one in (print, listen, print)]
    told, num_raised = list[Progress](), 0
    while engine.has_unfinished():
        try:
            told += engine.step()
        except KeyboardInterrupt:
            num_raised += 1
    assert num_raised == 2
    (alone,) = engine.generate([fit])
    for each in ids:
        gained = [progress for progress in told if progress.request_index == each]
        assert sum([progress.token_ids for progress in gained], ()) == alone.token_ids
        assert gained[-1].result == alone


def test_a_listener_may_take_no_step(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    engine, fit = engine_of(pair), ask(1, seed=1, max_tokens=9)

    def take_steps(_: Progress) -> None:
        engine.generate([fit])

    bad = engine.add_request(fit, on_progress=take_steps)
    good = engine.add_request(fit)
    ends = {p.request_index: p.result for p in run(engine) if p.result is not None}
    assert ends[bad].finish_reason is FinishReason.CANCELLED
    assert ends[good] == engine.generate([fit])[0]
    assert caplog.messages[0].endswith("step: expected one at a time, got one within another")


def test_only_a_number_is_cancelled(pair: Pair) -> None:
    with pytest.raises(InvalidInputError, match=r"^request_id: expected an integer, got \[\]"):
        engine_of(pair).cancel([])  # type: ignore[arg-type]


def test_a_stream_left_early_is_cancelled_and_hears_nothing_after_its_loop_has_closed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lab.soak` has streams of every kind run together."""
    engine, heard, tells = engine_of(pair), list[Progress](), list[OnProgress]()
    add_request = Engine.add_request

    def add(self: Engine, *asked: Any, on_progress: OnProgress, **fields: Any) -> int:
        def listen(progress: Progress) -> None:
            heard.append(progress)
            on_progress(progress)

        tells.append(on_progress)
        return add_request(self, *asked, on_progress=listen, **fields)

    monkeypatch.setattr(Engine, "add_request", add)

    async def leave() -> None:
        async for _ in engine.stream(ask(1, max_tokens=30)):
            return

    asyncio.run(leave())
    run(engine)
    assert heard[-1].result is not None
    assert heard[-1].result.finish_reason is FinishReason.CANCELLED
    tells[0](Progress(request_index=0))


def test_whoever_waits_for_a_stream_hears_of_a_step_that_raised(pair: Pair) -> None:
    engine = engine_of(evolve(pair, target=evolve(pair.target, table=torch.zeros(97, 12))))

    async def read() -> None:
        async for _ in engine.stream(ask(1)):
            pass

    with pytest.raises(InvalidInputError):
        asyncio.run(read())
