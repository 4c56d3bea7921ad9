"""Batches whose logits lie more than 2**31 numbers apart, of which only few are ever touched.

A host gives pages only to what is written, so this costs addresses and hardly any memory. It
refuses to write anything but the rows.
"""

import torch
from torch import Tensor

from ...core.batch import VerifyBatch
from ...core.policies import Probabilistic
from ...core.ports import Sampler
from ...core.sampling_params import SamplingParams
from ...core.sampling_tensors import SamplingTensors
from .findings import Findings
from .judge import judge_verify

STRIDE = 2**30
VOCAB_SIZE = 1000


def check_far_target_rows(sampler: Sampler, device: torch.device) -> Findings:
    """Two requests of two rows; the last row begins at number 3 * 2**30."""
    noise = torch.Generator().manual_seed(0)
    target = _far_apart(torch.randn(4, VOCAB_SIZE, generator=noise), device)
    draft = torch.randn(2, 1, VOCAB_SIZE, generator=noise).to(device)
    return _verify(target, draft, torch.tensor([0, 1], device=device), sampler)


def check_far_draft_slots(sampler: Sampler, device: torch.device) -> Findings:
    """Two requests in slots 2 and 3 of four."""
    noise = torch.Generator().manual_seed(1)
    target = torch.randn(4, VOCAB_SIZE, generator=noise).to(device)
    draft = _far_apart(torch.randn(4, VOCAB_SIZE, generator=noise), device)[:, None]
    return _verify(target, draft, torch.tensor([2, 3], device=device), sampler)


def _far_apart(rows: Tensor, device: torch.device) -> Tensor:
    span = STRIDE * (len(rows) - 1) + rows.shape[1]
    everything = torch.empty(span, dtype=torch.bfloat16, device=device)
    far = everything.as_strided(rows.shape, (STRIDE, 1))
    return far.copy_(rows)


def _verify(target: Tensor, draft: Tensor, slot_ids: Tensor, sampler: Sampler) -> Findings:
    batch = VerifyBatch(
        target_logits=target,
        cu_num_logits=torch.tensor([0, 2, 4], device=target.device),
        draft_token_ids=torch.tensor([[7], [11]], device=target.device),
        positions=torch.tensor([5, 6], device=target.device),
        draft_logits=draft,
        slot_ids=slot_ids,
    )
    params = SamplingTensors.stack([SamplingParams(seed=1), SamplingParams(seed=2)], target.device)
    output = sampler.verify(batch, params, Probabilistic())
    return judge_verify(batch, params, Probabilistic(), output)
