"""Steps: what one leaves for the next, their workspace and device, and steps that begin early."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from threading import local
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from attrs import define, evolve
from torch import Tensor

from acceptor.app.drawing import Workspace
from acceptor.app.engine import cuda_graphs
from acceptor.app.engine.engine import Engine
from acceptor.app.request import FinishReason, GenerationResult
from acceptor.app.verdicts import Verdict, read_verdicts
from acceptor.core import Probabilistic, SampleOutput, Sampler, Strict, VerifyOutput
from kit.toy_pair import LeakyModel, Pair, engine_with, record
from kit.toy_requests import ask

Action = Callable[[], None]
CPU = torch.device("cpu")


@pytest.mark.parametrize("num_spec_tokens", [0, 3])
def test_a_step_begins_before_the_one_before_it_is_read(
    pair: Pair, num_spec_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two requests ends with a stop token; its tokens after that are dropped."""
    log: list[str] = []

    def record_with_log(action: Action) -> Action:
        def replay() -> None:
            log.append("begin")
            action()

        action()
        return replay

    def read_with_log(*args: Any) -> list[Verdict]:
        log.append("read")
        return read_verdicts(*args)

    decoder = pair.decoder(Strict(), num_spec_tokens)
    requests = [ask(seed + 1, seed=seed, max_tokens=30) for seed in range(2)]
    stop = decoder.generate(requests)[0].token_ids[15]
    requests[0] = evolve(requests[0], stop_token_ids=(stop,))
    alone = [decoder.generate([request])[0] for request in requests]
    monkeypatch.setattr(cuda_graphs, "read_verdicts", read_with_log)
    assert engine_with(decoder, record_with_log).generate(requests) == alone
    assert alone[0].finish_reason is FinishReason.STOP
    assert log[:7] == ["begin", "begin", "read", "begin", "read", "begin", "read"]
    assert log.count("begin") == log.count("read")


def test_a_step_that_assumed_what_did_not_come_is_dropped(pair: Pair) -> None:
    """Logits of one request become NaN while the device is a step ahead."""
    decoder = evolve(pair, target=LeakyModel(pair.target.table)).decoder(Strict(), 0)
    requests = [
        ask(1, seed=seed, logit_bias={7: bias}, max_tokens=20)
        for seed, bias in enumerate([-float("inf"), 1.0])
    ]
    alone = [decoder.generate([request])[0] for request in requests]
    assert engine_with(decoder, record).generate(requests) == alone
    assert [one.finish_reason for one in alone] == [FinishReason.LENGTH, FinishReason.ERROR]
    assert len(alone[1].token_ids) > 1


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_a_step_that_was_interrupted_is_run_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, penalty: float
) -> None:
    """Ctrl-C arrives while the host waits for a step, and the device is one ahead."""
    num_read = [0]

    def interrupted_once(*args: Any) -> list[Verdict]:
        num_read[0] += 1
        if num_read[0] == 3:
            raise KeyboardInterrupt
        return read_verdicts(*args)

    monkeypatch.setattr(cuda_graphs, "read_verdicts", interrupted_once)
    decoder = pair.decoder(Probabilistic(), 3)
    requests = [ask(seed + 1, seed=seed, max_tokens=24) for seed in range(2)]
    requests = [evolve(r, params=evolve(r.params, frequency_penalty=penalty)) for r in requests]
    engine = engine_with(decoder, record)
    for request in requests:
        engine.add_request(request)
    results = list[GenerationResult]()
    while engine.has_unfinished():
        with suppress(KeyboardInterrupt):
            results += [one.result for one in engine.step() if one.result is not None]
    assert num_read[0] > 3
    key = attrgetter("token_ids")
    assert sorted(results, key=key) == sorted(decoder.generate(requests), key=key)


def test_a_workspace_grows_and_keeps_those_that_graphs_may_have_been_captured_with() -> None:
    workspace = Workspace()
    with workspace.for_call(4, CPU) as first, workspace.for_call(3, CPU) as kept:
        assert (first.dtype, first.tolist()) == (torch.uint8, [0] * 4)
        assert kept is first
    with workspace.for_call(5, CPU) as larger:
        assert larger.tolist() == [0] * 5
    assert first in workspace._tensors


@define(eq=False)
class Fragile:
    """Counts in its workspace, and is interrupted once before it has reset that."""

    sampler: Sampler
    calls_left: int

    def verify_workspace_size(self, *_: object) -> int:
        return 4

    sample_workspace_size = verify_workspace_size

    def verify(self, *call: Any, workspace: Tensor, out: None = None) -> VerifyOutput:
        self._work_in(workspace)
        return self.sampler.verify(*call, out=out)

    def sample(self, *call: Any, workspace: Tensor, out: None = None) -> SampleOutput:
        self._work_in(workspace)
        return self.sampler.sample(*call, out=out)

    def _work_in(self, workspace: Tensor) -> None:
        assert workspace.tolist() == [0] * 4
        workspace.fill_(1)
        self.calls_left -= 1
        if self.calls_left == 0:
            raise KeyboardInterrupt
        workspace.zero_()


@pytest.mark.parametrize("num_calls", [2, 4], ids=["sample", "verify"])
def test_a_call_that_breaks_off_leaves_a_clean_workspace(pair: Pair, num_calls: int) -> None:
    decoder, request = pair.decoder(Probabilistic(), 3), ask(1, max_tokens=12)
    fragile: Any = Fragile(decoder.sampler, num_calls)
    drafter: Any = decoder.drafter
    engine = engine_with(evolve(decoder, sampler=fragile, drafter=evolve(drafter, sampler=fragile)))
    engine.add_request(request)
    results = list[GenerationResult | None]()
    while engine.has_unfinished():
        with suppress(KeyboardInterrupt):
            results += [progress.result for progress in engine.step()]
    assert fragile.calls_left < 0
    assert results[-1:] == decoder.generate([request])


SECOND = torch.device("cuda", 1)


class Devices(local):
    """The current CUDA device of each thread: the first one until another is made current."""

    current = 0

    @contextmanager
    def within(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        yield
        self.current = before


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    made = Devices()
    monkeypatch.setattr(torch.accelerator, "device_index", made.within)
    return made


def test_a_step_runs_on_the_target_s_device(devices: Devices) -> None:
    """In the thread of a stream, too."""
    seen: list[int] = []
    loop = MagicMock(device=SECOND, notify=lambda: ())
    for part in (loop.admit_and_retire, loop.enter_prompts, loop.decode):
        part.side_effect = lambda: seen.append(devices.current)
    loop.has_unfinished = lambda: len(seen) < 6
    engine = Engine(loop, MagicMock())
    engine.step()
    assert (seen, devices.current) == ([1, 1, 1], 0)
    asyncio.run(engine._run())
    assert seen == [1] * 6
