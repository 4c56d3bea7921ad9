"""The workspace: a few numbers per block of 512 logits, and nothing as large as the vocabulary.

This module refuses to allocate: it says how much is needed and cuts it up.
"""

from attrs import frozen
from torch import Tensor

from ...core.checks import check_tensor
from ...core.errors import InvalidInputError
from ...core.race import BLOCK_SIZE
from .arguments import Scratch

DECISION_SIZE = 8


@frozen
class Layout:
    """How many float32 a launch needs, and where they lie.

    Attributes:
        num_reqs: requests.
        num_rows: rows of statistics per request: the target's and, if they are read, the draft's.
        num_blocks: blocks of 512 tokens in the larger of both vocabularies.
        has_residual: residuals are drawn from.
        has_filters: some request filters.
    """

    num_reqs: int
    num_rows: int
    num_blocks: int
    has_residual: bool
    has_filters: bool

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Floats of statistics, residual statistics, decisions and thresholds."""
        per_row = 2 * self.num_blocks
        num_rows = self.num_reqs * self.num_rows
        return (
            num_rows * per_row,
            self.num_reqs * per_row * self.has_residual,
            self.num_reqs * DECISION_SIZE * self.has_residual,
            num_rows * self.has_filters,
        )

    @property
    def size(self) -> int:
        """Floats in all."""
        return sum(self.sizes)

    def cut(self, workspace: Tensor) -> Scratch:
        """Name the parts of a workspace.

        Raises:
            InvalidInputError: it is too small, or not one-dimensional contiguous float32.
        """
        check_tensor("workspace", workspace, (None,), (workspace.dtype,))
        if workspace.shape[0] < self.size or workspace.element_size() != 4:
            raise InvalidInputError(
                f"workspace: expected {self.size} float32, got {workspace.shape[0]} "
                f"{workspace.dtype}"
            )
        statistics, residual, decisions, thresholds = workspace[: self.size].split(self.sizes)
        return Scratch(
            statistics=statistics,
            num_blocks=self.num_blocks,
            residual=residual if self.has_residual else None,
            thresholds=thresholds if self.has_filters else None,
            decisions=decisions if self.has_residual else None,
        )


def num_blocks(vocab_size: int) -> int:
    """Blocks of 512 tokens, the last one may be short."""
    return -(-vocab_size // BLOCK_SIZE)
