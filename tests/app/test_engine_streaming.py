"""Listeners and streams hear what their requests gain, and nothing after they have left."""

import asyncio
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.app.engine.entry import OnProgress
from acceptor.app.engine.streaming import Streams
from acceptor.app.request import GenerationRequest, Progress
from acceptor.core import InvalidInputError, Probabilistic, SamplingParams
from kit.toy_engine import engine_of, run
from kit.toy_pair import Pair


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

        async for _ in Streams().follow(engine, add):
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
