"""What penalties count: entered by slot, counted once each."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acceptor.core import (
    InvalidInputError,
    SamplingParams,
    SamplingTensors,
    TokenCounts,
    UnavailableError,
)


def test_a_slot_starts_with_its_prompt_and_forgets_the_last_request() -> None:
    counts = TokenCounts.empty(2, 4)
    counts.start(0, [1, 1, 3])
    counts.start(1, [])
    counts.add(torch.tensor([0]), torch.tensor([[2, 2, -1]]))
    assert counts.prompt_mask.tolist() == [[False, True, False, True], [False] * 4]
    assert counts.output_counts.tolist() == [[0, 0, 2, 0], [0] * 4]
    counts.start(0, [0])
    assert counts.prompt_mask[0].tolist() == [True, False, False, False]
    assert counts.output_counts[0].tolist() == [0] * 4


@pytest.mark.parametrize(
    ("slot_id", "prompt", "message"),
    [
        (2, [], r"^slot_id: expected a number in \[0, 1\], got 2"),
        (-1, [], r"^slot_id: expected a number in \[0, 1\], got -1"),
        (1, [0, 4], r"^prompt_token_ids: expected a number in \[0, 3\], got 4"),
        (1, [np.int64(-1)], r"^prompt_token_ids: expected a number in \[0, 3\], got -1"),
    ],
)
def test_a_slot_or_token_out_of_range_changes_nothing(
    slot_id: int, prompt: list[int], message: str
) -> None:
    counts = TokenCounts.empty(2, 4)
    of_numpy: list[Any] = [np.int64(3)]
    counts.start(1, of_numpy)
    with pytest.raises(InvalidInputError, match=message):
        counts.start(slot_id, prompt)
    assert counts.prompt_mask.tolist() == [[False] * 4, [False, False, False, True]]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_absent_cuda_is_one_line() -> None:
    message = r"^device: expected one of 0 CUDA devices, got cuda$"
    with pytest.raises(UnavailableError, match=message):
        TokenCounts.empty(2, 4, "cuda")
    with pytest.raises(UnavailableError, match=message):
        SamplingTensors.stack([SamplingParams(seed=1)], "cuda")
    with pytest.raises(InvalidInputError, match=r"^device: expected cpu or cuda, got 'tpu9'"):
        TokenCounts.empty(2, 4, "tpu9")


@given(
    st.lists(st.lists(st.integers(-1, 4), min_size=3, max_size=3), max_size=4),
    st.permutations(range(4)),
    st.sampled_from([torch.int32, torch.int64]),
)
def test_every_emitted_token_counts_once(
    emitted: list[list[int]], slots: list[int], dtype: torch.dtype
) -> None:
    counts = TokenCounts.empty(4, 5)
    slot_ids = torch.tensor(slots[: len(emitted)], dtype=dtype)
    counts.add(slot_ids, torch.tensor(emitted, dtype=torch.int64).view(-1, 3))
    for slot, tokens in zip(slots, emitted, strict=False):
        expected = [tokens.count(token_id) for token_id in range(5)]
        assert counts.output_counts[slot].tolist() == expected
    assert int(counts.output_counts.sum()) == sum(token >= 0 for row in emitted for token in row)


MASK = torch.zeros(2, 4, dtype=torch.bool)
COUNTS = torch.zeros(2, 4, dtype=torch.int32)


@pytest.mark.parametrize(
    ("name", "mask", "counts"),
    [
        ("prompt_mask", MASK[0], COUNTS),
        ("prompt_mask", MASK.int(), COUNTS),
        ("output_counts", MASK, COUNTS[:1]),
        ("output_counts", MASK, COUNTS.long()),
        ("output_counts", MASK, COUNTS.to("meta")),
        ("prompt_mask", MASK.repeat(1, 2)[:, :4], COUNTS),
        ("output_counts", MASK, COUNTS.repeat(1, 2)[:, :4]),
    ],
)
def test_a_wrong_tensor_is_named(name: str, mask: torch.Tensor, counts: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{name}: expected .*, got "):
        TokenCounts(prompt_mask=mask, output_counts=counts)
