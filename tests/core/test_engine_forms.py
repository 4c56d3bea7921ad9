"""Engines' own forms: offsets, probabilities, flat drafts, masks, chosen logprobs."""

from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.core import (
    LogprobsMode,
    Probabilistic,
    Recipe,
    SamplingTensors,
    VerifyBatch,
    chosen_logprobs,
    draft_rows,
    logits_from_probs,
    num_mask_words,
    pack_allowed,
    target_ids_from_offsets,
)
from acceptor.core.allowed_tokens import unpack_allowed
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


@pytest.mark.parametrize("lengths", [[2, 0, 3], [0, 0], [], [3]])
def test_drafts_one_behind_the_other_become_rows(lengths: list[int]) -> None:
    starts = [sum(lengths[:request]) + request for request in range(len(lengths) + 1)]
    flat = torch.arange(10, 10 + sum(lengths), dtype=torch.int32)
    of_numpy: Any = np.int64(4)
    rows = draft_rows(flat, torch.tensor(starts), of_numpy)
    assert rows.shape == (len(lengths), 4)
    own = [row[:n] for row, n in zip(rows.tolist(), lengths, strict=True)]
    assert [token_id for row in own for token_id in row] == flat.tolist()


LENGTHS, VOCAB_SIZE = [2, 0, 3, 1], 9
NOISE = torch.Generator().manual_seed(5)
STARTS = [0, 3, 4, 8, 10]
BATCH = VerifyBatch(
    target_logits=(3 * torch.randn(10, VOCAB_SIZE, generator=NOISE)).bfloat16(),
    cu_num_logits=torch.tensor(STARTS),
    draft_token_ids=torch.randint(VOCAB_SIZE, (4, 3), generator=NOISE),
    positions=torch.tensor([3, 4, 5, 6]),
)
CHOSEN = torch.tensor([[0, 8], [1, 1], [5, 2], [7, 3]])


def verified(**asked: object) -> tuple[SamplingTensors, torch.Tensor, torch.Tensor]:
    params = stacked(4, temperature=0.6, top_k=4, **asked)
    output = load_sampler("reference").verify(BATCH, params, Probabilistic())
    return params, output.token_ids, chosen_logprobs(BATCH, params, output, CHOSEN)


def test_they_are_the_rows_own() -> None:
    _, token_ids, chosen = verified(logprobs=0)
    rows = BATCH.target_logits.float().log_softmax(1)
    for request, start in enumerate(STARTS[:-1]):
        for place, token_id in enumerate(token_ids[request].tolist()):
            if token_id < 0:
                assert chosen[request, place].isnan().all()
            else:
                want = rows[start + place, CHOSEN[request]]
                torch.testing.assert_close(chosen[request, place], want, atol=2e-6, rtol=0)


def test_processed_logprobs_are_not_guessed() -> None:
    _, _, chosen = verified(logprobs=2, logprobs_mode=LogprobsMode.PROCESSED)
    assert chosen.isnan().all()


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 100])
def test_token_i_is_bit_i_of_32_in_word_i_of_32(vocab_size: int) -> None:
    masks = pack_allowed(torch.eye(vocab_size, dtype=torch.bool))
    assert masks.dtype is torch.int32
    assert masks.shape == (vocab_size, num_mask_words(vocab_size))
    for token, words in enumerate(masks.tolist()):
        word, bit = divmod(token, 32)
        assert [each % 2**32 for each in words] == [
            2**bit if place == word else 0 for place in range(len(words))
        ]


def test_masks_come_back_by_row() -> None:
    flags = torch.rand(4, 75, generator=torch.Generator().manual_seed(1)) < 0.5
    masks = pack_allowed(flags)
    assert torch.equal(unpack_allowed(masks, None, 1, 2, 75), flags[1:3])
    shared = unpack_allowed(masks, torch.tensor([0, 3, -1, 3]), 1, 3, 75)
    assert torch.equal(shared, torch.stack((flags[3], torch.ones(75).bool(), flags[3])))
    assert unpack_allowed(masks[:0], torch.tensor([-1]), 0, 1, 75).all()
