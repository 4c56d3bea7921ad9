"""Later calls of a kind launch the first one's kernels without Triton; new kinds ask it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import define, field
from torch import Tensor

from acceptor.core import (
    Block,
    Fly,
    InvalidInputError,
    Probabilistic,
    RelaxedTopN,
    SampleBatch,
    Stream,
    Strict,
    Synthetic,
    TokenCounts,
    Typical,
    VerifyBatch,
)

pytest.importorskip("triton")

from acceptor.backends.triton_backend import TritonSampler
from acceptor.backends.triton_backend import sampler as calls
from acceptor.backends.triton_backend.workspace import MIN_FRONT
from kit.batches import stacked

STREAM = 7
WARM: dict[str, Any] = {"temperature": 0.8}
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@define(eq=False)
class Compiled:
    """A stub of a compiled kernel; it records its arguments."""

    runs: list[Any]
    function: str = "function"
    packed_metadata: str = "metadata"

    def run(self, x: int, y: int, z: int, stream: int, *given: Any) -> None:
        assert (stream, *given[:5]) == (STREAM, self.function, self.packed_metadata, *[None] * 3)
        self.runs.append(((x, y, z), [*flat(given[5:])]))


@define(eq=False)
class Device:
    """A launcher without a device."""

    asked: list[Any] = field(factory=list)
    runs: list[Any] = field(factory=list)

    def __call__(self, _: Any, grid: tuple[int, ...], *given: Any, **__: Any) -> Compiled:
        self.asked.append((grid, [*flat(given)]))
        return Compiled(self.runs)


def flat(value: Any) -> Iterator[Any]:
    """A kernel's arguments in a flat list: addresses and numbers."""
    if isinstance(value, tuple):
        for part in value:
            yield from flat(part)
    else:
        yield value.data_ptr() if isinstance(value, Tensor) else getattr(value, "value", value)


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    active = SimpleNamespace(get_current_stream=lambda _: STREAM)
    monkeypatch.setattr(calls, "driver", SimpleNamespace(active=active))


def verify(
    R: int = 2,  # noqa: N803
    K: int = 3,  # noqa: N803
    V: int = 1024,  # noqa: N803
    *,
    policy: Any = Probabilistic(),  # noqa: B008
    logits: torch.dtype = torch.bfloat16,
    ids: torch.dtype = torch.int64,
    slots: torch.dtype | None = None,
    draft_vocab_size: int | None = 1000,
    draft_pad: int = 0,
    mapped: bool = False,
    counts: bool = False,
    spare_rows: int = 0,
    pad: int = 0,
    shifted: bool = False,
    more_workspace: int = 0,
    **recipe: Any,
) -> Call:
    """The arguments of `verify`, in memory of their own."""
    drafts = None
    if draft_vocab_size is not None:
        drafts = torch.zeros(R, K + draft_pad, draft_vocab_size, dtype=logits)
    rows = R * (K + 1) + spare_rows
    target = torch.zeros(rows * (V + pad) + shifted, dtype=logits)[shifted:]
    batch = VerifyBatch(
        target_logits=target.view(rows, V + pad)[:, :V],
        cu_num_logits=torch.arange(R + 1, dtype=torch.int32) * (K + 1),
        draft_token_ids=torch.zeros(R, K, dtype=ids),
        positions=torch.zeros(R, dtype=ids),
        slot_ids=None if slots is None else torch.arange(R, dtype=slots),
        draft_logits=drafts,
        draft_to_target=torch.arange(draft_vocab_size or 0) if mapped else None,
        token_counts=TokenCounts.empty(R, V) if counts else None,
    )
    params = stacked(R, **WARM | recipe)
    sampler = TritonSampler(lambda *_, **__: None, overlap=False)
    size = sampler.verify_workspace_size(batch, params, policy) + more_workspace
    out = sampler.verify(batch, params, policy)
    kept = {"out": out, "workspace": torch.zeros(size, dtype=torch.uint8)}
    return "verify", (batch, params, policy), kept


def sample(R: int = 2, V: int = 1024, target_vocab_size: int | None = None, **fields: Any) -> Call:  # noqa: N803
    """The arguments of `sample`, in memory of their own."""
    given = {key: fields.pop(key) for key in ("draft_index", "draft_stream") if key in fields}
    batch = SampleBatch(
        logits=torch.zeros(R, V),
        positions=torch.zeros(R, dtype=torch.int64),
        draft_to_target=None if target_vocab_size is None else torch.arange(V),
        target_vocab_size=target_vocab_size,
        **given,
    )
    params = stacked(R, **WARM | fields)
    sampler = TritonSampler(lambda *_, **__: None, overlap=False)
    size = sampler.sample_workspace_size(batch, params)
    out = sampler.sample(batch, params)
    return "sample", (batch, params), {"out": out, "workspace": torch.zeros(size).byte()}


PENALTY: dict[str, Any] = {"presence_penalty": 0.5, "counts": True}
KINDS: list[tuple[Any, dict[str, Any]]] = [
    *((verify, {"policy": policy}) for policy in (Probabilistic(), Block(), Strict(), Typical())),
    *((verify, {"policy": policy}) for policy in (Typical(0.09, 0.5), RelaxedTopN(), Fly())),
    *((verify, {"policy": Synthetic((0.5, rate))}) for rate in (0.5, 0.25)),
    *((verify, {"R": size}) for size in (1, 16)),
    *((verify, {"K": size}) for size in (0, 1, 2)),
    *((verify, {"V": size}) for size in (1000, 1008, 2048)),
    *((verify, {"pad": size}) for size in (1, 16)),
    *((verify, {"logits": dtype}) for dtype in (torch.float16, torch.float32)),
    *((verify, {"slots": dtype}) for dtype in (torch.int32, torch.int64)),
    *((verify, {"draft_vocab_size": size}) for size in (None, 512)),
    *((verify, {"draft_vocab_size": 512, "mapped": True, key: 1}) for key in ("pad", "R")),
    *((verify, {key: value}) for key, value in (("top_k", 5), ("top_p", 0.9), ("min_p", 0.1))),
    *((verify, {"logprobs": number}) for number in (0, 1, 16)),
    *((verify, {"logit_bias": bias}) for bias in ({1: 2.0}, {1: 2.0, 3: 1.0})),
    (verify, {"recipes": ({"temperature": 0.0},) * 2}),
    *((verify, {key: 1}) for key in ("draft_pad", "shifted")),
    *((verify, fields) for fields in ({"ids": torch.int32}, {"more_workspace": 16}, PENALTY)),
    (verify, {**PENALTY, "V": 1000}),
    *((sample, {key: value}) for key, value in (("R", 1), ("V", 1000), ("top_k", 3))),
    *((sample, fields) for fields in ({}, {"temperature": 0.0}, {"logprobs": 2})),
    *((sample, {"draft_index": place}) for place in (1, 2)),
    (sample, {"draft_index": 1, "draft_stream": Stream.TARGET}),
    *((sample, {"draft_index": 1, "target_vocab_size": size}) for size in (2000, 2048)),
]


def run(sampler: TritonSampler, call: Call) -> Any:
    name, arguments, kept = call
    return getattr(sampler, name)(*arguments, **kept)


def test_every_kind_of_call_asks_triton_once() -> None:
    device = Device()
    sampler = TritonSampler(device, overlap=False)
    for make, fields in KINDS:
        asked = len(device.asked)
        run(sampler, make(**fields))
        assert len(device.asked) > asked, fields
    device.runs.clear()
    num_asked = len(device.asked)
    for make, fields in KINDS:
        call = make(**fields)
        before = len(device.runs)
        run(sampler, call)
        other = Device()
        fresh = TritonSampler(other, overlap=False)
        # Samplers that are compared must not invert the same map into different memory.
        fresh._inverses = sampler._inverses
        run(fresh, call)
        assert device.runs[before:] == other.asked, fields
    assert len(device.asked) == num_asked


def test_rows_that_belong_to_nobody_make_no_other_kind() -> None:
    device = Device()
    sampler = TritonSampler(device, overlap=False)
    run(sampler, verify())
    asked = len(device.asked)
    run(sampler, verify(spare_rows=5))
    assert len(device.asked) == asked


def test_nothing_is_launched_without_requests() -> None:
    device = Device()
    sampler = TritonSampler(device, overlap=False)
    for call in (verify(R=0), verify(R=0, K=0, policy=Block()), sample(R=0)):
        for _ in range(2):
            assert not run(sampler, call).token_ids.numel()
    assert not device.asked
    assert not device.runs


def test_a_known_call_checks_what_may_differ_and_allocates_what_is_not_given() -> None:
    device = Device()
    sampler = TritonSampler(device, overlap=False)
    _, (batch, params, policy), kept = verify()
    first = sampler.verify(batch, params, policy)
    asked = len(device.asked)
    again = sampler.verify(batch, params, policy)
    assert len(device.asked) == asked
    assert again.token_ids.data_ptr() != first.token_ids.data_ptr()
    with pytest.raises(InvalidInputError, match="workspace"):
        sampler.verify(batch, params, policy, workspace=kept["workspace"][:-16].clone())
    with pytest.raises(InvalidInputError, match=r"params\.seeds"):
        sampler.verify(batch, stacked(1), policy)


def test_a_large_front_is_cleared_before_every_call() -> None:
    sampler = TritonSampler(Device(), overlap=False)
    call = verify(R=400, K=15, V=4, policy=Block(), draft_vocab_size=None)
    workspace = call[2]["workspace"]
    for _ in range(2):
        workspace.fill_(1)
        run(sampler, call)
        assert not workspace[:MIN_FRONT].any()
