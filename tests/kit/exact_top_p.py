"""Rows whose tokens weigh exactly the same at distinct logits, so that top-p is met exactly.

Logits some 1e-30 apart are distinct in float32 and bfloat16, and exp of their differences is 1.
"""

import torch
from attrs import frozen
from torch import Tensor

from acceptor.core import SampleBatch, SamplingParams, SamplingTensors

STEP = 1e-30


@frozen(eq=False)
class ExactRow:
    """A row and what top-p leaves of it.

    Attributes:
        top_p: a dyadic number.
        levels: [vocab_size] int64, the place of each token's logit from the largest, 0, on; equal
            levels are ties.
        num_kept: how many levels are kept.
    """

    top_p: float
    levels: Tensor
    num_kept: int

    @property
    def logits(self) -> Tensor:
        """[vocab_size] float32."""
        return -STEP * self.levels.float()

    @property
    def kept(self) -> Tensor:
        """[vocab_size] bool."""
        return self.levels < self.num_kept


def _row(top_p: float, sizes: tuple[int, ...], num_kept: int) -> ExactRow:
    levels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    order = torch.randperm(len(levels), generator=torch.Generator().manual_seed(len(levels)))
    return ExactRow(top_p, levels[order], num_kept)


EXACT_ROWS = (
    _row(0.5, (1, 1, 1, 1), 2),
    _row(0.25, (1, 1, 1, 1), 1),
    _row(0.75, (1, 1, 1, 1), 3),
    # Ties share one fate, and the mass before a level is that of all tokens above it.
    _row(0.5, (2, 2, 4), 2),
    _row(0.25, (2, 2, 4), 1),
    _row(0.5, (1, 2, 5), 3),
    _row(0.375, (1, 2, 5), 2),
    # Across blocks of 512.
    _row(0.5, (512, 512), 1),
    _row(0.5, (300, 212, 500, 12), 2),
    _row(0.75, (1000, 536, 512), 2),
)
"""One `ExactRow` per case; the sizes are those of its levels."""


def sample_batch(row: ExactRow, dtype: torch.dtype = torch.float32) -> SampleBatch:
    """One target draw from the row."""
    return SampleBatch(logits=row.logits.to(dtype)[None], positions=torch.tensor([3]))


def params_of(row: ExactRow) -> SamplingTensors:
    """Asks for the processed logprobs of all tokens: finite where a token was kept."""
    asked = SamplingParams(seed=1, top_p=row.top_p, logprobs=len(row.levels))
    tensors = SamplingTensors.stack([asked])
    tensors.logprobs_processed.fill_(True)
    return tensors
