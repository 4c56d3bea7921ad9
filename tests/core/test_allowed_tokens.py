"""Masks hold a bit for each token where xgrammar has it, and say which row they are of."""

from typing import Any

import pytest
import torch

from acceptor.core import InvalidInputError, SampleBatch, num_mask_words, pack_allowed
from acceptor.core.allowed_tokens import unpack_allowed


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


def test_flags_are_flags() -> None:
    with pytest.raises(InvalidInputError, match=r"^allowed: expected dtype bool"):
        pack_allowed(torch.zeros(2, 5))


def test_a_draft_draw_has_no_mask() -> None:
    drafts: list[dict[str, Any]] = [
        {"draft_index": 1},
        {"draft_to_target": torch.arange(5), "target_vocab_size": 9},
    ]
    for draft in drafts:
        with pytest.raises(InvalidInputError, match=r"^allowed_tokens: .* for a draft draw"):
            SampleBatch(
                logits=torch.zeros(1, 5),
                positions=torch.tensor([0]),
                allowed_tokens=torch.zeros(1, 1, dtype=torch.int32),
                **draft,
            )


def test_the_words_of_a_mask_lie_side_by_side() -> None:
    apart = torch.zeros(1, 4, dtype=torch.int32)[:, ::2]
    with pytest.raises(InvalidInputError, match=r"^allowed_tokens\.stride\(1\): expected"):
        SampleBatch(logits=torch.zeros(1, 40), positions=torch.tensor([0]), allowed_tokens=apart)
