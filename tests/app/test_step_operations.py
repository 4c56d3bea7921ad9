"""How many operations a decode step starts on a GPU: each costs microseconds, whatever it does.

The models are on torch's meta device, which computes nothing and takes every branch of a GPU.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import field, frozen
from torch.utils._python_dispatch import TorchDispatchMode

from acceptor.adapters import language_model
from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.model_config import ModelConfig
from acceptor.adapters.pieces import PLAIN_PIECES, Pieces
from acceptor.adapters.slot_blocks import SlotBlocks
from acceptor.adapters.spans import Spans
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

LAYER = Counter({"product": 4, "attention_kernel": 1})
"""What one layer may start."""

FORWARD = Counter({"embedding_kernel": 1, "product": 1})
"""What a forward may start beside its layers."""

LAYER_OF_LONG = Counter({"product": 4, "_flash_attention_forward": 1, "turn_and_store": 1})
"""The same with more tokens of a request. Fused, `turn_and_store` is two kernels."""

LAYER_OF_MANY = Counter(
    {"linear": 4, "flex_attention": 1, "add_and_normalise": 2, "gate": 1, "turn_and_store": 1}
)
"""The same with still more of a batch. Fused, the other pieces are one kernel each."""

PLACES = Counter({"index_select": 1, "floor_divide": 1, "add": 3, "to": 2, "mul": 1, "arange": 1})
"""Rotations, and where keys are."""

FORWARD_OF_LONG = FORWARD + Counter({"index_select": 1, "add": 2, "mul": 1, "arange": 1})

FORWARD_OF_MANY = PLACES + Counter({"embedding": 1, "rms_norm": 1, "linear": 1})


class Started(TorchDispatchMode):
    """Counts operations that compute something; a piece counts as one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()
        self.in_piece: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if (
            not self.in_piece
            and not name.startswith(("empty", "new_empty"))
            and not is_view(out, func, args)
        ):
            self.counts[name] += 1
        return out

    def kernel(self, name: str) -> Any:
        """Counts its launches, and starts nothing."""

        class Kernel:
            def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
                return lambda *args, **options: counts.update([name])  # noqa: ARG005

        counts = self.counts
        return Kernel()

    def flex_attention(self, queries: torch.Tensor, *args: Any) -> torch.Tensor:  # noqa: ARG002
        """Counts a call, and computes nothing."""
        self.counts.update(["flex_attention"])
        return queries.flatten(1)

    def pieces(self) -> Pieces:
        """The plain ones, counted."""
        names = ("add_and_normalise", "turn_and_store", "gate")
        return Pieces(*(self._counted(name, getattr(PLAIN_PIECES, name)) for name in names))

    def _counted(self, name: str, piece: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.counts[name] += 1
            self.in_piece.append(name)
            try:
                return piece(*args)
            finally:
                self.in_piece.pop()

        return call


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
    "tiling.vector_kernel": "product",
    "tiling.matrix_kernel": "product",
    "tiling.block_kernel": "product",
    "tiling.turns_kernel": "product",
    "forward.embedding_kernel": "embedding_kernel",
    "attend.attention_kernel": "attention_kernel",
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    counting = Started()
    monkeypatch.setattr(Spans, "can_be_used", lambda device, dtype: True)  # noqa: ARG005
    monkeypatch.setattr(language_model, "can_compile", lambda device: True)  # noqa: ARG005
    monkeypatch.setattr(language_model, "fused_pieces", counting.pieces)
    monkeypatch.setattr(SlotBlocks, "attend", counting.flex_attention)
    for kernel, name in KERNELS.items():
        monkeypatch.setattr(f"acceptor.adapters.few_tokens.{kernel}", counting.kernel(name))
    return counting


@pytest.mark.parametrize(
    ("num_reqs", "num_tokens", "forward", "layer"),
    [
        (NUM_REQS, 1, FORWARD, LAYER),
        (NUM_REQS, NUM_SPEC_TOKENS + 1, FORWARD, LAYER),
        (16, 2, FORWARD, LAYER),
        (72, 1, FORWARD_OF_MANY, LAYER_OF_MANY),
        (72, NUM_SPEC_TOKENS + 1, FORWARD_OF_MANY, LAYER_OF_MANY),
        (NUM_REQS, 9, FORWARD_OF_LONG, LAYER_OF_LONG),
        (NUM_REQS, 32, FORWARD_OF_LONG, LAYER_OF_LONG),
    ],
)
def test_a_forward_starts_these_operations(
    tmp_path: Path,
    started: Started,
    num_reqs: int,
    num_tokens: int,
    forward: Counter[str],
    layer: Counter[str],
) -> None:
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
    forwards = times(FORWARD + LAYER, NUM_SPEC_TOKENS + 1)
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
