"""Masks of allowed tokens, a bit per token, laid out as in xgrammar and other grammar libraries."""

import torch
from torch import Tensor

from .checks import check_integers, check_tensor

WORD_BITS = 32
"""Token i is bit i % 32 of word i // 32; a bit of 1 allows it."""


def num_mask_words(vocab_size: int) -> int:
    """How many int32 words one mask takes.

    Raises:
        InvalidInputError: the size is no int of at least 0.
    """
    if type(vocab_size) is not int or vocab_size < 0:
        check_integers("vocab_size", (vocab_size,), 0)
    return -(-vocab_size // WORD_BITS)


def pack_allowed(allowed: Tensor) -> Tensor:
    """Pack flags into masks.

    Args:
        allowed: [num_masks, vocab_size] bool.

    Returns:
        [num_masks, ceil(vocab_size / 32)] int32, the `allowed_tokens` of a batch.

    Raises:
        InvalidInputError: wrong shape or dtype.
    """
    check_tensor("allowed", allowed, (None, None), (torch.bool,))
    num_masks, vocab_size = allowed.shape
    num_words = num_mask_words(vocab_size)
    padded = torch.nn.functional.pad(allowed, (0, num_words * WORD_BITS - vocab_size))
    bits = torch.arange(WORD_BITS, device=allowed.device)
    words = (padded.view(num_masks, num_words, WORD_BITS).long() << bits).sum(-1)
    # The highest bit is the sign of an int32.
    return torch.where(words < 2**31, words, words - 2**32).to(torch.int32)


def unpack_allowed(
    masks: Tensor, mask_rows: Tensor | None, first: int, count: int, vocab_size: int
) -> Tensor:
    """Which tokens some consecutive rows of logits allow: [count, vocab_size] bool."""
    rows = torch.arange(first, first + count, device=masks.device)
    if mask_rows is not None:
        rows = mask_rows[first : first + count].long()
    if len(masks) == 0:
        return torch.ones(count, vocab_size, dtype=torch.bool, device=masks.device)
    bits = torch.arange(WORD_BITS, dtype=torch.int32, device=masks.device)
    flags = (masks[rows.clamp(min=0)][..., None] >> bits) & 1
    return (flags.flatten(1)[:, :vocab_size] != 0) | (rows < 0)[:, None]
