"""A sampler's workspace is as it must be at the beginning of every call."""

from contextlib import suppress
from typing import Any

import pytest
import torch
from attrs import define, evolve
from torch import Tensor

from acceptor.app.request import GenerationResult
from acceptor.app.workspace import Workspace
from acceptor.core import Probabilistic, SampleOutput, Sampler, VerifyOutput
from kit.toy_engine import engine_with
from kit.toy_pair import Pair
from kit.toy_requests import ask

CPU = torch.device("cpu")


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
    """Counts in its workspace, and is interrupted once before it has put things right."""

    sampler: Sampler
    calls_left: int

    def verify_workspace_size(self, *_: object) -> int:
        return 4

    def sample_workspace_size(self, *_: object) -> int:
        return 4

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
def test_a_call_that_breaks_off_leaves_the_next_one_a_clean_workspace(
    pair: Pair, num_calls: int
) -> None:
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
