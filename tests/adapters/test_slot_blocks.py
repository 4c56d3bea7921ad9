"""Attention by blocks sees a slot up to each query's position, within its window."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation

from acceptor.adapters.kv_cache import LayerCache
from acceptor.adapters.slot_blocks import BLOCK_LEN, SlotBlocks


# Uncompiled it computes all scores, and says so.
@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@pytest.mark.parametrize("window", [None, 90])
@pytest.mark.parametrize("num_tokens", [1, 3])
def test_a_query_sees_its_slot_up_to_its_position(num_tokens: int, window: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    max_len, heads, kv_heads, head_dim = 2 * BLOCK_LEN, 4, 2, 16
    cache = LayerCache(torch.randn(4, max_len, 2 * kv_heads, head_dim, generator=generator))
    slot_ids, lengths = torch.tensor([3, 0, 2]), torch.tensor([0, 200, BLOCK_LEN - 2])
    positions = lengths[:, None] + torch.arange(num_tokens)
    queries = torch.randn(3 * num_tokens, heads, head_dim, generator=generator)
    got = SlotBlocks.of(positions, slot_ids, max_len).attend(queries, cache, window)
    keys, values = cache.read(slot_ids, max_len)
    seen = torch.arange(max_len) <= positions[:, :, None]
    if window is not None:
        seen &= torch.arange(max_len) > positions[:, :, None] - window
    expected = F.scaled_dot_product_attention(
        queries.view(3, num_tokens, heads, head_dim).transpose(1, 2),
        keys,
        values,
        seen[:, None],
        enable_gqa=True,
    )
    torch.testing.assert_close(got, expected.transpose(1, 2).reshape(got.shape))


def test_blocks_are_those_that_are_filled() -> None:
    positions = torch.tensor([[BLOCK_LEN - 1], [BLOCK_LEN], [0]])
    blocks = SlotBlocks.of(positions, torch.tensor([2, 0, 1]), 3 * BLOCK_LEN)
    assert blocks.num_blocks.flatten().tolist() == [1, 2, 1]
    assert blocks.blocks.flatten(1).tolist() == [[6, 7, 8], [0, 1, 2], [3, 4, 5]]
    assert blocks.starts.tolist() == [6 * BLOCK_LEN, 0, 3 * BLOCK_LEN]


def test_small_heads_are_not_for_blocks() -> None:
    assert SlotBlocks.can_be_used(16)
    assert not SlotBlocks.can_be_used(8)
