"""The workspace: a few numbers per block of 512 logits, and nothing as large as the vocabulary.

Its front counts how many programs have finished a row; it is zero between calls. This module
refuses to hold a workspace: the caller does, or nobody.
"""

import torch
from attrs import frozen
from torch import Tensor

from ...core.checks import check_tensor
from ...core.errors import InvalidInputError
from ...core.race import BLOCK_SIZE
from .arguments import Scratch

MAX_CANDIDATES = 512
"""Logits per row that are ranked against each other; more are searched through."""

MIN_ARRIVALS = 16384
"""Arrival counters lie in front, so that batches of other shapes leave them alone."""


@frozen
class Layout:
    """How many words of 4 bytes a call needs, and where they lie.

    Attributes:
        num_reqs: requests.
        num_rows: rows of statistics per request: the target's and, if they are read, the draft's.
        num_blocks: blocks of 512 tokens in the larger of both vocabularies.
        num_residuals: residuals per request that may be drawn from.
        has_filters: some request filters.
        num_raw_rows: rows per request whose raw logits are summed up for logprobs.
    """

    num_reqs: int
    num_rows: int
    num_blocks: int
    num_residuals: int
    has_filters: bool
    num_raw_rows: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Words of each part, in the order of `_parts`."""
        per_row = 2 * self.num_blocks
        num_rows = self.num_reqs * self.num_rows
        return (
            max(num_rows, MIN_ARRIVALS),
            2 * num_rows,
            num_rows * per_row,
            self.num_reqs * self.num_residuals * per_row,
            num_rows * self.has_filters,
            num_rows * self.num_blocks * self.has_filters,
            num_rows * MAX_CANDIDATES * self.has_filters,
            2 * self.num_reqs * self.num_raw_rows,
            self.num_reqs * self.num_raw_rows * per_row,
        )

    @property
    def size(self) -> int:
        """Words in all."""
        return sum(self.sizes)

    def cut(self, workspace: Tensor) -> Scratch:
        """Name the parts of a workspace.

        Raises:
            InvalidInputError: it is too small, or not one-dimensional contiguous float32.
        """
        parts = self._parts(workspace)
        arrivals, summaries, statistics, residual, thresholds, listed, candidates, *_ = parts
        return Scratch(
            arrivals=arrivals.view(torch.int32),
            statistics=statistics,
            summaries=summaries,
            num_blocks=self.num_blocks,
            residual=residual if self.num_residuals else None,
            thresholds=thresholds if self.has_filters else None,
            listed_blocks=listed.view(torch.int32) if self.has_filters else None,
            candidates=candidates if self.has_filters else None,
        )

    def cut_raw(self, workspace: Tensor) -> Scratch:
        """The same for statistics of raw logits."""
        arrivals, *_, summaries, statistics = self._parts(workspace)
        return Scratch(
            arrivals.view(torch.int32), statistics, summaries, self.num_blocks, *[None] * 4
        )

    def _parts(self, workspace: Tensor) -> tuple[Tensor, ...]:
        check_tensor("workspace", workspace, (None,), (torch.float32,))
        if workspace.shape[0] < self.size or not workspace.is_contiguous():
            raise InvalidInputError(
                f"workspace: expected at least {self.size} contiguous float32, "
                f"got {workspace.shape[0]}"
            )
        parts: tuple[Tensor, ...] = workspace[: self.size].split(self.sizes)
        if self.num_reqs * self.num_rows > MIN_ARRIVALS:
            parts[0].zero_()
        return parts

    def allocate(self, device: torch.device) -> Tensor:
        """A workspace for one call or many, one after the other on one stream."""
        workspace = torch.empty(self.size, dtype=torch.float32, device=device)
        workspace[:MIN_ARRIVALS].zero_()
        return workspace


def num_blocks(vocab_size: int) -> int:
    """Blocks of 512 tokens, the last one may be short."""
    return -(-vocab_size // BLOCK_SIZE)
