"""A batch that cannot be right raises an error that names the field, and no value is read."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import (
    InvalidInputError,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Stream,
    Strict,
    TokenCounts,
    VerifyBatch,
    empty_sample_output,
    empty_verify_output,
)
from acceptor.core.call_memory import check_fits
from kit.batches import dense
from kit.operators import OperatorLog

NUM_REQS, MAX_SPEC_LEN, VOCAB_SIZE, DRAFT_VOCAB_SIZE, NUM_SLOTS = 3, 2, 7, 5, 4
NUM_LOGITS = 8
Shapes = list[tuple[int, ...]]


@contextmanager
def nothing_read() -> Iterator[None]:
    """Fails when a tensor's value reaches the host, or when one is copied between devices."""
    with OperatorLog() as log:
        yield
    assert log.names().isdisjoint({"local_scalar_dense", "to_copy", "copy_", "nonzero", "equal"})


@pytest.fixture(params=["cpu", "meta"])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    with nothing_read():
        yield torch.device(request.param)


def verify_tensors(device: torch.device) -> dict[str, Any]:
    """A good batch; on the meta device, where there is nothing to read."""
    return {
        "target_logits": torch.zeros(NUM_LOGITS, VOCAB_SIZE, device=device),
        "cu_num_logits": torch.zeros(NUM_REQS + 1, dtype=torch.int32, device=device),
        "draft_token_ids": torch.zeros(NUM_REQS, MAX_SPEC_LEN, dtype=torch.int64, device=device),
        "positions": torch.zeros(NUM_REQS, dtype=torch.int64, device=device),
        "draft_logits": torch.zeros(NUM_SLOTS, MAX_SPEC_LEN, DRAFT_VOCAB_SIZE, device=device),
        "slot_ids": torch.zeros(NUM_REQS, dtype=torch.int64, device=device),
        "draft_to_target": torch.zeros(DRAFT_VOCAB_SIZE, dtype=torch.int64, device=device),
        "token_counts": TokenCounts.empty(NUM_SLOTS, VOCAB_SIZE, device=device),
        "allowed_tokens": torch.zeros(2, 1, dtype=torch.int32, device=device),
        "allowed_rows": torch.zeros(NUM_LOGITS, dtype=torch.int32, device=device),
    }


def sample_tensors(device: torch.device) -> dict[str, Any]:
    return {
        "logits": torch.zeros(NUM_REQS, VOCAB_SIZE, device=device),
        "positions": torch.zeros(NUM_REQS, dtype=torch.int64, device=device),
        "slot_ids": torch.zeros(NUM_REQS, dtype=torch.int64, device=device),
        "token_counts": TokenCounts.empty(NUM_SLOTS, VOCAB_SIZE, device=device),
    }


FLOATS, INTEGERS = {torch.float32, torch.bfloat16, torch.float16}, {torch.int32, torch.int64}
DTYPES = FLOATS | INTEGERS | {torch.float64, torch.int16, torch.uint8, torch.bool}
ALLOWED = dict.fromkeys(("target_logits", "draft_logits", "logits"), FLOATS)
ALLOWED |= {"draft_to_target": {torch.int64}, "allowed_tokens": {torch.int32}}
"""Integers otherwise."""

ROW_OF_REQUESTS: Shapes = [(2,), (4,), (3, 1)]
WRONG_SHAPES: dict[str, Shapes] = {
    "target_logits": [(7,), (2, 4, 7), (8, 0)],
    "logits": [(7,), (3, 1, 7), (3, 0)],
    "cu_num_logits": [(3,), (5,), (4, 1)],
    "draft_token_ids": [(3,), (3, 2, 1)],
    "positions": ROW_OF_REQUESTS,
    "draft_logits": [(4, 5), (4, 1, 5), (4, 2, 0), (4, 2, 8)],
    "slot_ids": ROW_OF_REQUESTS,
    "draft_to_target": [(7,), (5, 1)],
    "allowed_tokens": [(2, 0), (2, 2)],
    "allowed_rows": [(7,), (8, 1)],
}


def wrong_tensors(good: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in good.items():
        if isinstance(value, Tensor):
            yield name, value.tolist()
            yield from ((name, value.new_zeros(shape)) for shape in WRONG_SHAPES[name])
            wrong = DTYPES - ALLOWED.get(name, INTEGERS)
            yield from ((name, value.to(dtype)) for dtype in sorted(wrong, key=str))
            if name.endswith("logits") and value.is_floating_point():
                yield name, value.repeat_interleave(2, -1)[..., ::2]
    yield from (("token_counts", value) for value in (TokenCounts.empty(4, VOCAB_SIZE + 1), 5))


CPU = torch.device("cpu")
WRONG_FOR_VERIFY = [
    *wrong_tensors(verify_tensors(CPU)),
    *[(name, None) for name in ("draft_token_ids", "positions", "allowed_tokens")],
]
WRONG_FOR_SAMPLE = [
    *wrong_tensors(sample_tensors(CPU)),
    ("draft_to_target", torch.zeros(6, dtype=torch.int64)),
    ("allowed_tokens", torch.zeros(2, 1, dtype=torch.int32)),
    *[("draft_index", value) for value in (0, -1, 1.0, True, 2**31)],
    ("target_vocab_size", 2**31),
    *[("draft_stream", stream) for stream in (Stream.ACCEPT, Stream.RECOVER, 0, torch.zeros(2))],
]


def test_a_good_batch_is_built_without_reading_it(device: torch.device) -> None:
    batch = VerifyBatch(**verify_tensors(device))
    assert (batch.num_reqs, batch.max_spec_len, batch.vocab_size) == (3, 2, 7)
    params = SamplingTensors.stack([SamplingParams(seed=1)] * NUM_REQS, device)
    check_fits(batch, params)
    sample = SampleBatch(**sample_tensors(device))
    assert sample.num_reqs == 3
    check_fits(sample, params)


@pytest.mark.parametrize("backend", ["reference", "triton", "cupy"])
def test_policies_are_instances_and_parameters_stacked(device: torch.device, backend: str) -> None:
    batch, sample = VerifyBatch(**verify_tensors(device)), SampleBatch(**sample_tensors(device))
    params = SamplingTensors.stack([SamplingParams(seed=1)] * NUM_REQS, device)
    sampler = load_sampler(backend)
    draw = partial(sampler.sample, out=empty_sample_output(sample, params))
    verify = partial(sampler.verify, out=empty_verify_output(batch, params, Strict()))
    not_policies: list[Any] = [Strict, "strict", None]
    for policy in not_policies:
        for call in (verify, empty_verify_output):
            with pytest.raises(InvalidInputError, match=r"^policy: expected one such as .*, got "):
                call(batch, params, policy)
    listed: Any = [SamplingParams(seed=1)] * NUM_REQS
    calls: list[Callable[[], object]] = [
        lambda: verify(batch, listed, Strict()),
        lambda: draw(sample, listed),
        lambda: empty_verify_output(batch, listed, Strict()),
        lambda: empty_sample_output(sample, listed),
    ]
    for refused in calls:
        with pytest.raises(InvalidInputError, match=r"^params: expected SamplingTensors.*got list"):
            refused()


def both_kinds(verify: Iterable[Any], sample: Iterable[Any]) -> list[tuple[Any, Any, Any]]:
    """(the batch's class, what makes its tensors, one of these) for each of both."""
    verifying = [(VerifyBatch, verify_tensors, one) for one in verify]
    return verifying + [(SampleBatch, sample_tensors, one) for one in sample]


@pytest.mark.parametrize(("kind", "make", "wrong"), both_kinds(WRONG_FOR_VERIFY, WRONG_FOR_SAMPLE))
def test_a_wrong_tensor_of_a_batch_is_named(kind: Any, make: Any, wrong: tuple[str, Any]) -> None:
    name, value = wrong
    tensors = make(torch.device("cpu")) | {name: value}
    with nothing_read(), pytest.raises(InvalidInputError, match=rf"^{name}\b.*: expected .*, got "):
        kind(**tensors)


@pytest.mark.parametrize(
    ("kind", "make", "name"),
    both_kinds(
        sorted({*verify_tensors(torch.device("meta"))} - {"target_logits"}),
        sorted({*sample_tensors(torch.device("meta"))} - {"logits"}),
    ),
)
def test_a_tensor_of_a_batch_on_another_device_is_named(kind: Any, make: Any, name: str) -> None:
    tensors = make(torch.device("cpu")) | {name: make(torch.device("meta"))[name]}
    expected = rf"^{name}\b.*: expected device cpu, got meta$"
    with nothing_read(), pytest.raises(InvalidInputError, match=expected):
        kind(**tensors)


@pytest.mark.parametrize(
    ("name", "too_few"),
    [
        ("draft_logits", torch.zeros(NUM_REQS - 1, MAX_SPEC_LEN, DRAFT_VOCAB_SIZE)),
        ("token_counts", TokenCounts.empty(NUM_REQS - 1, VOCAB_SIZE)),
    ],
)
def test_without_slot_ids_every_request_needs_its_slot(name: str, too_few: object) -> None:
    tensors = verify_tensors(torch.device("cpu")) | {"slot_ids": None}
    VerifyBatch(**tensors)
    with pytest.raises(InvalidInputError, match=rf"^{name}.*shape\[0\]: expected .*, got 2$"):
        VerifyBatch(**tensors | {name: too_few})
    if name == "token_counts":
        tensors = sample_tensors(torch.device("cpu")) | {"slot_ids": None}
        with pytest.raises(InvalidInputError, match=rf"^{name}.*shape\[0\]: expected .*, got 2$"):
            SampleBatch(**tensors | {name: too_few})


MAPPED: dict[str, Any] = {"logits": torch.zeros(1, 3), "draft_to_target": torch.arange(3)}
MAPPED |= {"positions": torch.zeros(1, dtype=torch.int64)}


def test_integers_of_numpy_are_taken() -> None:
    numbers: dict[str, Any] = {"draft_index": np.int64(1), "target_vocab_size": np.int32(4)}
    sample = SampleBatch(**MAPPED, **numbers)
    assert (type(sample.draft_index), type(sample.target_vocab_size)) == (int, int)


def test_a_dense_batch_is_a_view() -> None:
    logits = torch.arange(2.0 * 3 * 8).view(2, 3, 8)[..., :7]
    batch = dense(logits)
    assert batch.target_logits.data_ptr() == logits.data_ptr()
    assert batch.target_logits.stride() == (8, 1)
    assert torch.equal(batch.target_logits, logits.reshape(6, 7))
    assert batch.cu_num_logits.tolist() == [0, 3, 6]


@pytest.mark.parametrize(
    ("logits", "expected"),
    [(torch.zeros(2, 4, 7)[:, :3], ".*, got strides")]
    + [(torch.zeros(shape), r"shape \[2, 3, any\]") for shape in [(2, 2, 7), (3, 3, 7), (6, 7)]],
)
def test_dense_batches_refuse_other_rows_and_copies(logits: Tensor, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^target_logits: expected {expected}"):
        VerifyBatch.dense(
            target_logits=logits,
            draft_token_ids=torch.zeros(2, 2, dtype=torch.int64),
            positions=torch.zeros(2, dtype=torch.int64),
        )


def test_one_token_vocabularies_have_any_stride() -> None:
    logits = torch.zeros(()).expand(2, 1)
    SampleBatch(logits=logits, positions=torch.zeros(2, dtype=torch.int64))
