"""Samplers of others as the audit runs them: draw a draft from each row, verify it step by step."""

import torch
from torch import Tensor
from transformers.generation import utils

from ...core.batch import PADDING_TOKEN_ID
from ...core.errors import InvalidInputError


def transformers(target: Tensor, draft: Tensor, temperature: float, seed: int) -> Tensor:
    """Hugging Face's `_speculative_sampling`, with drafts that were drawn from its q."""
    torch.manual_seed(seed)
    scaled = _scaled(draft, temperature)
    drafts = scaled.softmax(-1).flatten(0, 1).multinomial(1).view(draft.shape[:2])
    return _speculate(drafts, scaled, _scaled(target, temperature))


def transformers_single_position(
    target: Tensor, draft: Tensor, temperature: float, seed: int
) -> Tensor:
    """The same as `SinglePositionMultiTokenCandidateGenerator` feeds it: argmax, and raw logits."""
    torch.manual_seed(seed)
    return _speculate(draft.argmax(dim=-1), draft, _scaled(target, temperature))


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        raise InvalidInputError("temperature: expected a number above 0 for this sampler, got 0")
    return logits / temperature


def _speculate(drafts: Tensor, draft: Tensor, target: Tensor) -> Tensor:
    emitted = torch.full(target.shape[:2], PADDING_TOKEN_ID)
    for into, *one in zip(emitted, drafts[:, None], draft[:, None], target[:, None], strict=True):
        ids, q, p = one
        tokens, _ = utils._speculative_sampling(ids, q, ids.shape[1], p)  # noqa: SLF001, audited
        into[: tokens.shape[1]] = tokens[0]
    return emitted
