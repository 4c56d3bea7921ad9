"""How many operations a step starts beside its forwards: each costs microseconds on a GPU.

The models are on torch's meta device, which computes nothing and takes every branch of a GPU.
Nothing is read from the host, nor copied to it: the meta device would refuse.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import frozen
from torch.utils._python_dispatch import TorchDispatchMode

from acceptor.app.decode import DecodeStep
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.parts import Parts
from acceptor.app.model_drafter import ModelDrafter
from acceptor.core import (
    Policy,
    Probabilistic,
    SampleOutput,
    Scores,
    Strict,
    VerifyBatch,
    VerifyOutput,
)
from kit.no_workspace import NoWorkspace
from kit.toy_pair import Letters, TableModel
from kit.toy_requests import state_of

META = torch.device("meta")
NUM_REQS, NUM_SPEC_TOKENS = 2, 3

OPERATIONS = Counter(add=4, addcmul_=1, cat=2, clamp=6, gather=1, ge=1, masked_fill_=2)
OPERATIONS += Counter(stack=2, to=2)
"""Positions, drafts that are cut, and what is left for the host and the next step."""


class Started(TorchDispatchMode):
    """Counts operations that compute something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not name.startswith(("empty", "new_empty")) and not is_view(out, func, args):
            self.counts[name] += 1
        return out


def is_view(out: Any, func: Any, args: Any) -> bool:
    """Whether an operation only looks at its first argument's memory in another way."""
    if func._schema.is_mutable or not args or not isinstance(args[0], torch.Tensor):
        return False
    outs = out if isinstance(out, list | tuple) else [out]
    memory = args[0].untyped_storage()._cdata
    return all(one.untyped_storage()._cdata == memory for one in outs)


class MetaModel(TableModel):
    """Starts nothing."""

    def forward(
        self, token_ids: torch.Tensor, *_: Any, last_only: bool = False, **__: Any
    ) -> Scores:
        num_rows = 1 if last_only else token_ids.shape[1]
        return Scores(torch.empty(len(token_ids), num_rows, self.vocab_size, device=META))


@frozen(eq=False)
class MetaSampler(NoWorkspace):
    """Draws nothing."""

    def sample(self, *_: Any, **__: Any) -> SampleOutput:
        empty = torch.empty(NUM_REQS, dtype=torch.int64, device=META)
        return SampleOutput(empty, torch.empty_like(empty, dtype=torch.int32), None)

    def verify(self, batch: VerifyBatch, *_: Any, **__: Any) -> VerifyOutput:
        counts = torch.empty_like(batch.positions, dtype=torch.int32)
        return VerifyOutput(torch.empty_like(batch.draft_token_ids), counts, counts, None, None)


@pytest.mark.parametrize(
    ("policy", "kept"),
    [(Strict(coupled=True), {}), (Probabilistic(), {"index_put_": NUM_SPEC_TOKENS})],
    ids=["no draft logits kept", "draft logits kept"],
)
def test_a_step_starts_few_operations_beside_its_forwards(
    policy: Policy, kept: dict[str, int]
) -> None:
    model, started = MetaModel(torch.empty(97, 13, device=META), device=META), Started()
    parts = Parts(
        target=model,
        drafter=ModelDrafter(
            model=model, sampler=MetaSampler(), policy=policy, num_spec_tokens=NUM_SPEC_TOKENS
        ),
        sampler=MetaSampler(),
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=Letters,
    )

    def record(action: Callable[[], None]) -> Callable[[], None]:
        """Counts what an action starts; it runs once before, and makes what is kept."""
        action()
        with started:
            action()
        return lambda: None

    runner = GraphRunner(DecodeStep.allocate(parts, NUM_REQS, 64), record)
    states = [state_of(1, 2, slot_id=slot_id) for slot_id in range(NUM_REQS)]
    with torch.inference_mode():
        draft_limits, gained = [NUM_SPEC_TOKENS] * NUM_REQS, [()] * NUM_REQS
        runner.begin(runner.gather(states), draft_limits, None, gained)
    assert started.counts == OPERATIONS + Counter(kept)
