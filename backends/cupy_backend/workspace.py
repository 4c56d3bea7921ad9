"""Where the stages of a launch meet: one buffer per device and stream, sized exactly, reused.

It is cleared once, when it is made: every launch leaves its control words ready for the next. This
module refuses to share a workspace between streams.
"""

import torch
from attrs import frozen
from torch import Tensor

from ...core.race import BLOCK_SIZE

_HEAD_WORDS = 4
_ROW_BYTES, _DRAFT_BYTES, _DECISION_BYTES, _MASS_BYTES, _FLOAT_BYTES = 32, 16, 32, 8, 4


@frozen
class Extent:
    """How large a batch is, as far as the workspace is concerned."""

    num_reqs: int
    max_spec_len: int
    num_logits: int
    vocab_size: int
    draft_vocab_size: int = 0

    @property
    def target_blocks(self) -> int:
        """Blocks of a target row."""
        return -(-self.vocab_size // BLOCK_SIZE)

    @property
    def draft_blocks(self) -> int:
        """Blocks of a draft row; 0 if none is read."""
        return -(-self.draft_vocab_size // BLOCK_SIZE)

    @property
    def set_words(self) -> int:
        """Words of one of the two sets of control words."""
        words = self.num_reqs * (self.max_spec_len + 1 + 4)
        return words + words % 2

    @property
    def control_words(self) -> int:
        """All control words."""
        return _HEAD_WORDS + 2 * self.set_words

    @property
    def scratch_bytes(self) -> int:
        """What is written and read inside one launch."""
        draft_rows = self.num_reqs * self.max_spec_len
        return (
            self.num_logits * (_ROW_BYTES + self.target_blocks * _MASS_BYTES)
            + draft_rows * (_DRAFT_BYTES + self.draft_blocks * _MASS_BYTES)
            + draft_rows * self.target_blocks * _FLOAT_BYTES
            + self.num_reqs * _DECISION_BYTES
        )


@frozen(eq=False)
class Workspace:
    """Room for batches up to an extent.

    Attributes:
        control: int32, zero when made.
        scratch: uint8, never cleared.
        set_words: how many control words each of the two sets has room for.
    """

    control: Tensor
    scratch: Tensor
    set_words: int

    @classmethod
    def for_extent(cls, extent: Extent, device: torch.device) -> "Workspace":
        """A workspace of exactly this size."""
        return cls(
            control=torch.zeros(extent.control_words, dtype=torch.int32, device=device),
            scratch=torch.empty(max(extent.scratch_bytes, 1), dtype=torch.uint8, device=device),
            set_words=extent.set_words,
        )

    def holds(self, extent: Extent) -> bool:
        """Whether a batch fits."""
        return extent.set_words <= self.set_words and extent.scratch_bytes <= self.scratch.numel()
