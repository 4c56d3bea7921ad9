"""Other projects' samplers, wrapped for the audit: draw a draft from each row, verify each step."""

from functools import partial

import torch
from torch import Tensor
from transformers.generation import utils

from ...core import PADDING_TOKEN_ID, InvalidInputError


def transformers(target: Tensor, draft: Tensor, temperature: float, seed: int) -> Tensor:
    """Hugging Face's `_speculative_sampling`, with drafts that were drawn from its q."""
    torch.manual_seed(seed)
    scaled = _scaled(draft, temperature)
    return _speculate(_drawn(scaled.softmax(-1)), scaled, _scaled(target, temperature))


def transformers_single_position(
    target: Tensor, draft: Tensor, temperature: float, seed: int
) -> Tensor:
    """The same with inputs of `SinglePositionMultiTokenCandidateGenerator`: argmax, raw logits."""
    torch.manual_seed(seed)
    return _speculate(draft.argmax(dim=-1), draft, _scaled(target, temperature))


def flashinfer(target: Tensor, draft: Tensor, temperature: float, seed: int) -> Tensor:
    """FlashInfer's `chain_speculative_sampling`, with drafts that were drawn from its q."""
    from flashinfer import sampling  # noqa: PLC0415, needs a GPU

    torch.manual_seed(seed)
    p, q = (_scaled(rows, temperature).softmax(-1).to(_device()) for rows in (target, draft))
    token_ids: Tensor = sampling.chain_speculative_sampling(q, _drawn(q).int(), p)[0]
    return token_ids


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        raise InvalidInputError("temperature: expected a number above 0 for this sampler, got 0")
    return logits / temperature


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _drawn(probs: Tensor) -> Tensor:
    return probs.flatten(0, 1).multinomial(1).view(probs.shape[:2])


def _speculate(drafts: Tensor, draft: Tensor, target: Tensor) -> Tensor:
    emitted = torch.full(target.shape[:2], PADDING_TOKEN_ID)
    steps = (rows[:, None] for rows in (drafts, draft, target))
    for into, ids, q, p in zip(emitted, *steps, strict=True):
        tokens, _ = utils._speculative_sampling(ids, q, ids.shape[1], p)  # noqa: SLF001, audited
        into[: tokens.shape[1]] = tokens[0]
    return emitted


def vllm(
    target: Tensor,
    draft: Tensor,
    temperature: float,
    seed: int,
    *,
    use_block_verification: bool = False,
) -> Tensor:
    """The kernels of vLLM's second model runner; each step is a request with its own seed."""
    # vLLM is imported only when it is audited.
    from vllm.v1.worker.gpu.sample.gumbel import apply_temperature, gumbel_sample  # noqa: PLC0415
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils  # noqa: PLC0415

    device, (num_reqs, num_rows, _) = _device(), target.shape
    target, draft = target.to(device), draft.to(device)
    slots = torch.arange(num_reqs, dtype=torch.int32, device=device)
    temperatures = torch.full((num_reqs,), temperature, device=device)
    seeds = seed * num_reqs + slots.long()
    places = torch.arange(num_rows, device=device)
    cache, token_ids = torch.empty_like(draft), [torch.zeros_like(seeds)]
    for place in range(num_rows - 1):
        drawn = gumbel_sample(
            draft[:, place].contiguous(),
            slots,
            temperatures,
            seeds,
            places[place].expand(num_reqs),
            apply_temperature=True,
            is_drafting=True,
            logits_cache=cache,
            logits_cache_col=places[place],
        )
        token_ids.append(drawn)
    rows, logits = slots.repeat_interleave(num_rows), target.flatten(0, 1).clone()
    apply_temperature(logits, rows, temperatures)
    sampled, num_sampled = rejection_sampler_utils.rejection_sample(
        logits,
        cache,
        torch.stack(token_ids, 1).flatten(),
        num_rows * torch.arange(num_reqs + 1, dtype=torch.int32, device=device),
        places.repeat(num_reqs),
        slots,
        rows,
        places.int().repeat(num_reqs),
        temperatures,
        seeds,
        num_rows - 1,
        use_block_verification=use_block_verification,
    )
    emitted: Tensor = sampled.where(places < num_sampled[:, None], PADDING_TOKEN_ID)
    return emitted


vllm_block = partial(vllm, use_block_verification=True)
"""vLLM's kernels under its `rejection_sample_method` block."""
