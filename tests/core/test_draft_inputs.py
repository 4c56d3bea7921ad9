"""What draft models keep in other forms becomes what batches take."""

from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.core import (
    InvalidInputError,
    Probabilistic,
    Recipe,
    draft_rows,
    logits_from_probs,
    target_ids_from_offsets,
)
from kit.batches import dense, stacked


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_offsets_are_added_to_the_draft_ids(dtype: torch.dtype) -> None:
    ids = target_ids_from_offsets(torch.tensor([0, 0, 3, 3, 7], dtype=dtype))
    assert ids.tolist() == [0, 1, 5, 6, 11]
    assert ids.dtype is torch.int64


def test_probabilities_verify_as_the_logits_they_came_from() -> None:
    generator = torch.Generator().manual_seed(1)
    target, draft = (torch.randn(64, n, 6, generator=generator) for n in (3, 2))
    drafts = torch.randint(6, (64, 2), generator=generator)
    recipe = Recipe(temperature=0.5, top_k=4)
    probs = (draft / 0.5).masked_fill(draft < draft.topk(4).values[..., -1:], -torch.inf)

    def verified(draft_logits: torch.Tensor, recipe: Recipe) -> torch.Tensor:
        batch = evolve(dense(target, draft_logits=draft_logits), draft_token_ids=drafts)
        params = stacked(64, draft=recipe)
        return load_sampler("reference").verify(batch, params, Probabilistic()).token_ids

    wanted = verified(draft, recipe)
    assert torch.equal(verified(logits_from_probs(probs.softmax(-1)), Recipe()), wanted)
    assert not torch.equal(verified(logits_from_probs(probs.softmax(-1)), recipe), wanted)


def test_other_tensors_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"^offsets: expected dtype int32 or int64"):
        target_ids_from_offsets(torch.zeros(3))
    with pytest.raises(InvalidInputError, match=r"^probs: expected dtype"):
        logits_from_probs(torch.zeros(2, 3, dtype=torch.int64))


@pytest.mark.parametrize("lengths", [[2, 0, 3], [0, 0], [], [3]])
def test_drafts_one_behind_the_other_become_rows(lengths: list[int]) -> None:
    starts = [sum(lengths[:request]) + request for request in range(len(lengths) + 1)]
    flat = torch.arange(10, 10 + sum(lengths), dtype=torch.int32)
    of_numpy: Any = np.int64(4)
    rows = draft_rows(flat, torch.tensor(starts), of_numpy)
    assert rows.shape == (len(lengths), 4)
    own = [row[:n] for row, n in zip(rows.tolist(), lengths, strict=True)]
    assert [token_id for row in own for token_id in row] == flat.tolist()
