"""How many operations a decode step starts on a GPU: each costs microseconds, whatever it does.

The models are on torch's meta device, which computes nothing and takes every branch of a GPU.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from attrs import field, frozen
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from acceptor.adapters import language_model, step_planner
from acceptor.adapters.few_tokens.forward import FewTokens
from acceptor.adapters.few_tokens.gpu import Gpu
from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.layer_operations import PLAIN_OPERATIONS, LayerOperations
from acceptor.adapters.model_config import ModelConfig
from acceptor.adapters.spans import Spans
from acceptor.adapters.transformer import Decoder
from acceptor.adapters.weights import WeightReader, expected_tensors
from acceptor.app.engine.capture import Record
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.parts import Parts
from acceptor.app.model_drafter import ModelDrafter
from acceptor.core import (
    Policy,
    Probabilistic,
    SampleOutput,
    Strict,
    VerifyBatch,
    VerifyOutput,
)
from kit.llama_shapes import DRAFT, TARGET
from kit.no_workspace import NoWorkspace
from kit.toy_pair import Letters
from kit.toy_requests import state_of

META = torch.device("meta")
NUM_REQS, NUM_SPEC_TOKENS, MAX_LEN = 2, 3, 64

FEW = Counter(embedding=1, rms_norm=1, product=1), Counter(product=4, attention_kernel=1)
"""What a forward may start beside its layers, and what each layer may start."""

LONG = (
    FEW[0] + Counter(index_select=1, add=2, mul=1, arange=1),
    Counter(product=4, _flash_attention_forward=1, turn_and_store=1),
)
"""The same with more tokens of a request. Fused, `turn_and_store` is two kernels."""

MANY = (
    Counter(embedding=1, rms_norm=1, linear=1),
    Counter(linear=4, attention_kernel=1, add_and_normalise=2, gate=1),
)
"""The same with still more of a batch. Fused, the other operations are one kernel each."""


class Started(TorchDispatchMode):
    """Counts operations that compute something; a piece counts as one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not name.startswith(("empty", "new_empty")) and not is_view(out, func, args):
            self.counts[name] += 1
        return out

    def kernel(self, name: str) -> Any:
        """Counts its launches, and starts nothing."""
        kernel = MagicMock()
        kernel.__getitem__.return_value.side_effect = lambda *_, **__: self.counts.update([name])
        return kernel

    def piece(self, name: str) -> Callable[..., Any]:
        """Counts its calls, and not what they start."""

        def call(*args: Any) -> Any:
            self.counts[name] += 1
            with _disable_current_modes():
                return getattr(PLAIN_OPERATIONS, name)(*args)

        return call

    def operations(self) -> LayerOperations:
        """The plain ones, counted."""
        return LayerOperations(*map(self.piece, ("add_and_normalise", "turn_and_store", "gate")))


def is_view(out: Any, func: Any, args: Any) -> bool:
    """Whether an operation only looks at its first argument's memory in another way."""
    if func._schema.is_mutable or not args or not isinstance(args[0], torch.Tensor):
        return False
    outs = out if isinstance(out, list | tuple) else [out]
    memory = args[0].untyped_storage()._cdata
    return all(one.untyped_storage()._cdata == memory for one in outs)


@frozen
class MetaTensors:
    """Weights without values."""

    shapes: dict[str, tuple[int, ...]]
    entries: dict[str, Any] = field(factory=dict)

    def tensor(self, name: str) -> torch.Tensor:
        return torch.empty(self.shapes[name], dtype=torch.bfloat16, device=META)


@frozen(eq=False)
class MetaSampler(NoWorkspace):
    """Draws nothing."""

    def sample(self, *_: Any, **__: Any) -> SampleOutput:
        empty = torch.empty(NUM_REQS, dtype=torch.int64, device=META)
        return SampleOutput(empty, torch.empty_like(empty, dtype=torch.int32), None)

    def verify(self, batch: VerifyBatch, *_: Any, **__: Any) -> VerifyOutput:
        counts = torch.empty_like(batch.positions, dtype=torch.int32)
        return VerifyOutput(torch.empty_like(batch.draft_token_ids), counts, counts, None, None)


KERNELS = {
    "tiling.matrix_kernel": "product",
    "tiling.block_kernel": "product",
    "attend.attention_kernel": "attention_kernel",
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    counting = Started()
    monkeypatch.setattr(Spans, "can_be_used", lambda device, dtype: True)  # noqa: ARG005
    monkeypatch.setattr(step_planner, "can_compile", lambda device: True)  # noqa: ARG005
    monkeypatch.setattr(step_planner, "fused_operations", counting.operations)
    monkeypatch.setattr(language_model, "choose_kernels", few_tokens_on_h200)
    for kernel, name in KERNELS.items():
        monkeypatch.setattr(f"acceptor.adapters.few_tokens.{kernel}", counting.kernel(name))
    return counting


def few_tokens_on_h200(
    forward: str,  # noqa: ARG001
    decoder: Decoder,
    angles: torch.Tensor,
) -> FewTokens:
    gpu = Gpu(num_processors=132, shared_memory=227 * 1024, prefetches=True, overlaps=True)
    return FewTokens.of(decoder, angles, gpu)


@pytest.mark.parametrize(
    ("num_reqs", "num_tokens", "expected"),
    [
        (NUM_REQS, 1, FEW),
        (NUM_REQS, NUM_SPEC_TOKENS + 1, FEW),
        (16, 2, FEW),
        (72, 1, MANY),
        (72, NUM_SPEC_TOKENS + 1, MANY),
        (NUM_REQS, 9, LONG),
        (NUM_REQS, 32, LONG),
    ],
)
def test_a_forward_starts_these_operations(
    tmp_path: Path,
    started: Started,
    num_reqs: int,
    num_tokens: int,
    expected: tuple[Counter[str], Counter[str]],
) -> None:
    forward, layer = expected
    for num_layers in (1, 3):
        model = model_of(tmp_path, TARGET, num_layers)
        ids = torch.empty(num_reqs, num_tokens, dtype=torch.int64, device=META)
        cache = model.new_cache(num_reqs, MAX_LEN)
        started.counts.clear()
        with torch.inference_mode(), started:
            model.forward(ids, ids, cache, ids[:, 0], last_only=True)
        assert started.counts == forward + times(layer, num_layers)


BESIDE_FORWARDS = Counter(add=4, addcmul_=1, cat=2, clamp=6, gather=1, ge=1, masked_fill_=2)
BESIDE_FORWARDS += Counter(stack=2, to=2)
"""Positions, drafts that are cut, and what is left for the host and the next step. Nothing is read
from the host, nor copied to it: the meta device would refuse."""


@pytest.mark.parametrize(
    ("policy", "kept"),
    [(Strict(coupled=True), {}), (Probabilistic(), {"index_put_": NUM_SPEC_TOKENS})],
    ids=["no draft logits kept", "draft logits kept"],
)
def test_a_step_starts_few_operations_beside_its_forwards(
    tmp_path: Path, started: Started, policy: Policy, kept: dict[str, int]
) -> None:
    target, draft = model_of(tmp_path, TARGET, 1), model_of(tmp_path, DRAFT, 1)
    drafter = ModelDrafter(
        model=draft, sampler=MetaSampler(), policy=policy, num_spec_tokens=NUM_SPEC_TOKENS
    )
    parts = Parts(
        target=target,
        drafter=drafter,
        sampler=MetaSampler(),
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=Letters,
    )
    runner = GraphRunner(parts.step(NUM_REQS, MAX_LEN), repeated(started))
    states = [state_of(1, 2, slot_id=slot_id) for slot_id in range(NUM_REQS)]
    with torch.inference_mode():
        draft_limits, gained = [NUM_SPEC_TOKENS] * NUM_REQS, [()] * NUM_REQS
        runner.begin(runner.gather(states), draft_limits, None, gained)
    forwards = times(FEW[0] + FEW[1], NUM_SPEC_TOKENS + 1)
    assert started.counts == forwards + BESIDE_FORWARDS + Counter(kept)


def times(counts: Counter[str], number: int) -> Counter[str]:
    return Counter({name: number * count for name, count in counts.items()})


def model_of(folder: Path, shape: dict[str, Any], num_layers: int) -> TransformerModel:
    file = folder / "config.json"
    file.write_text(json.dumps(shape | {"num_hidden_layers": num_layers}), encoding="utf-8")
    config = ModelConfig.read(file)
    tensors = MetaTensors(expected_tensors(config))
    decoder = WeightReader(tensors, config, torch.bfloat16, META).decoder()
    return TransformerModel(config, decoder, MAX_LEN)


def repeated(started: Started) -> Record:
    """Counts what an action starts; it runs once before, and makes what is kept."""

    def record(action: Callable[[], None]) -> Callable[[], None]:
        action()
        started.counts.clear()
        with started:
            action()
        return lambda: None

    return record
