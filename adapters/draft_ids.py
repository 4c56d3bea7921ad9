"""Which of its target's tokens a draft model with fewer ids has, as its checkpoint states."""

import torch
from torch import Tensor

from ..core.checks import check_integer, check_integers, check_tensor
from ..core.errors import CheckpointError, InvalidInputError
from .weights import DRAFT_TO_TARGET, Tensors


def read_draft_ids(checkpoint: Tensors, num_draft_ids: int, target_vocab_size: int) -> Tensor:
    """[num_draft_ids] int64, the target's id of each draft id.

    Raises:
        CheckpointError: the tensor has another shape or dtype, leaves the target's vocabulary, or
            has one id twice.
    """
    offsets = checkpoint.tensor(DRAFT_TO_TARGET)
    try:
        check_tensor("offsets", offsets, (num_draft_ids,), (torch.int64,))
        target_ids = torch.arange(num_draft_ids) + offsets
        check_integers("target_ids", target_ids.tolist(), 0, target_vocab_size - 1)
        num_different = len(target_ids.unique())
        check_integer("target_ids: different ones", num_different, num_draft_ids, num_draft_ids)
    except InvalidInputError as error:
        file = checkpoint.entries[DRAFT_TO_TARGET].file
        raise CheckpointError(f"{file}: {DRAFT_TO_TARGET}: {error}") from None
    return target_ids
