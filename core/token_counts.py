"""Which tokens each request has seen; kernels apply penalties from these while they load logits.

Counts are addressed by slot and outlive the step, like a KV cache.
"""

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor

from .checks import (
    INTEGERS,
    MAX_INT32,
    check_contiguous,
    check_device,
    check_integers,
    check_tensor,
)


@frozen(eq=False)
class TokenCounts:
    """Each slot's prompt tokens and output counts, in contiguous tensors.

    Attributes:
        prompt_mask: [num_slots, vocab_size] bool, True for tokens of the slot's prompt.
        output_counts: [num_slots, vocab_size] int32, occurrences in the slot's output.

    Raises:
        InvalidInputError: wrong shape, dtype, device or strides.
    """

    prompt_mask: Tensor
    output_counts: Tensor

    def __attrs_post_init__(self) -> None:
        mask, counts = self.prompt_mask, self.output_counts
        check_tensor("prompt_mask", mask, (None, None), (torch.bool,))
        check_tensor("output_counts", counts, mask.shape, (torch.int32,), mask.device)
        check_contiguous("prompt_mask", mask)
        check_contiguous("output_counts", counts)

    @classmethod
    def empty(
        cls, num_slots: int, vocab_size: int, device: torch.device | str = "cpu"
    ) -> "TokenCounts":
        """Counts of requests that have seen nothing.

        Raises:
            InvalidInputError: a size is no int in [0, 2**31 - 1], or PyTorch knows no such device.
            UnavailableError: there is no such CUDA device.
        """
        check_integers("num_slots", (num_slots,), 0, MAX_INT32)
        check_integers("vocab_size", (vocab_size,), 0, MAX_INT32)
        device = check_device(device, any_type=True)
        return cls(
            prompt_mask=torch.zeros(num_slots, vocab_size, dtype=torch.bool, device=device),
            output_counts=torch.zeros(num_slots, vocab_size, dtype=torch.int32, device=device),
        )

    def start(self, slot_id: int, prompt_token_ids: Sequence[int]) -> None:
        """Forget what the slot held and enter a new request's prompt.

        Raises:
            InvalidInputError: there is no such slot, or a token is outside the vocabulary.
        """
        num_slots, vocab_size = self.prompt_mask.shape
        check_integers("slot_id", (slot_id,), 0, num_slots - 1)
        check_integers("prompt_token_ids", prompt_token_ids, 0, vocab_size - 1)
        self.prompt_mask[slot_id] = False
        self.prompt_mask[slot_id, list(prompt_token_ids)] = True
        self.output_counts[slot_id] = 0

    def add(self, slot_ids: Tensor, token_ids: Tensor) -> None:
        """Count emitted tokens.

        Args:
            slot_ids: [num_reqs] int.
            token_ids: [num_reqs, num_tokens] int, -1 where nothing was emitted.

        Raises:
            InvalidInputError: wrong shape, dtype or device.
        """
        device = self.output_counts.device
        check_tensor("token_ids", token_ids, (None, None), INTEGERS, device)
        check_tensor("slot_ids", slot_ids, token_ids.shape[:1], INTEGERS, device)
        emitted = (token_ids >= 0).to(torch.int32)
        rows = slot_ids.long()[:, None].expand_as(token_ids)
        self.output_counts.index_put_((rows, token_ids.clamp(min=0)), emitted, accumulate=True)
