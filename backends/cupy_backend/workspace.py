"""Where the stages of a launch meet: one buffer per device and stream, sized exactly, reused.

It is cleared once, when it is made: every step leaves its control words ready for the next. This
module refuses to share a workspace between streams.
"""

import torch
from attrs import frozen
from torch import Tensor

from ...core.race import BLOCK_SIZE

_HEAD_WORDS = 2
_REQUEST_WORDS = 3
_MAX_COUNTED, _MAX_SHARED_ROWS, _MAX_SHARING = 1024, 8, 160
_MASS_BYTES, _FLOAT_BYTES = 8, 4
MOST_PIECES = 32
"""Of a row that is read by pieces."""
_MOST_PAIR_PIECES = 14
"""The same where the draft's row has as many; both and two logits are a warp's."""


@frozen
class Extent:
    """How large a batch is, as far as the workspace is concerned.

    `num_logits` counts rows, or requests if some have none and there are fewer rows.
    """

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
    def most_pieces(self) -> int:
        """How many a row may be read by."""
        return _MOST_PAIR_PIECES if self.draft_blocks else MOST_PIECES

    @property
    def control_words(self) -> int:
        """Control words, as cuda/workspace.cuh counts them."""
        masses = self._target_masses + self._draft_masses
        return self._counting_words + 2 * (masses + self._rivals)

    @property
    def announced(self) -> tuple[tuple[str, int], ...]:
        """Where blocks' statistics are told among the control words, in bytes from their begin."""
        begin = 4 * self._counting_words
        drafts = begin + 8 * self._target_masses
        rivals = drafts + 8 * self._draft_masses
        return ("announced", begin), ("announced_drafts", drafts), ("rivals", rivals)

    @property
    def areas(self) -> tuple[tuple[str, int], ...]:
        """What is written and read inside one launch, in bytes: all multiples of what follows."""
        draft_rows = self.num_reqs * self.max_spec_len
        return (
            ("target_stats", self._target_masses * _MASS_BYTES),
            ("draft_stats", self._draft_masses * _MASS_BYTES),
            ("residuals", draft_rows * self.target_blocks * _FLOAT_BYTES),
        )

    @property
    def _counting_words(self) -> int:
        counts = min(self.num_reqs, _MAX_SHARING) * _MAX_SHARED_ROWS * _MAX_COUNTED
        words = _HEAD_WORDS + self.num_reqs * _REQUEST_WORDS + counts
        return words + words % 2

    @property
    def _target_masses(self) -> int:
        return self.num_logits * self.target_blocks

    @property
    def _draft_masses(self) -> int:
        return self.num_reqs * self.max_spec_len * self.draft_blocks

    @property
    def _rivals(self) -> int:
        return self.num_reqs * (self.max_spec_len + 1) * MOST_PIECES

    @property
    def scratch_bytes(self) -> int:
        """All of them."""
        return sum(num_bytes for _, num_bytes in self.areas)

    @property
    def num_bytes(self) -> int:
        """Of a caller's workspace."""
        return _aligned(4 * self.control_words) + self.scratch_bytes


@frozen(eq=False)
class Workspace:
    """Room for batches up to an extent.

    Attributes:
        control: int32, zero when made.
        scratch: uint8, never cleared.
    """

    control: Tensor
    scratch: Tensor

    @classmethod
    def for_extent(cls, extent: Extent, device: torch.device) -> "Workspace":
        """A workspace of exactly this size."""
        return cls(
            control=torch.zeros(extent.control_words, dtype=torch.int32, device=device),
            scratch=torch.empty(max(extent.scratch_bytes, 1), dtype=torch.uint8, device=device),
        )

    @classmethod
    def of_bytes(cls, workspace: Tensor, extent: Extent) -> "Workspace":
        """A workspace for one call of this extent in a caller's bytes, aligned to 16."""
        begin = _aligned(4 * extent.control_words)
        control = workspace[: 4 * extent.control_words].view(torch.int32)
        # Calls of other extents have their scratch here.
        control.zero_()
        return cls(control, workspace[begin:])

    def holds(self, extent: Extent) -> bool:
        """Whether a batch fits."""
        return (
            extent.control_words <= self.control.numel()
            and extent.scratch_bytes <= self.scratch.numel()
        )


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // 16) * 16
