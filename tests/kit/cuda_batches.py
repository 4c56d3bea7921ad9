"""Small batches for CUDA kernels that run on the host."""

from typing import Any

import torch

from acceptor.core import SamplingParams, SamplingTensors, VerifyBatch


def random_batch(
    seed: int, filtered: bool, *, aligned: bool = False, ragged: bool = True
) -> tuple[VerifyBatch, SamplingTensors]:
    """Five requests with a bad id, a NaN, a padded stride and a narrower draft.

    `aligned` ones can be read by whole vectors, and some warps read three blocks of a row. Unless
    `ragged`, all have the same number of rows, and the draft's are where the request's place says.
    """
    noise = torch.Generator().manual_seed(seed)
    vocab_size, narrow, pad = (17_160, 16_904, 8) if aligned else (1301, 1100, 3)
    num_draft_tokens = (3, 0, 4, 2, 4) if ragged else (4,) * 5
    starts = torch.tensor([0, *(k + 1 for k in num_draft_tokens)]).cumsum(0)
    logits = torch.randn(int(starts[-1]), vocab_size + pad, generator=noise) * 2.5
    logits = logits.to(torch.bfloat16)[:, :vocab_size]
    near = torch.randn(7 if ragged else 5, 4, narrow, generator=noise)
    slots = torch.tensor([4, 0, 6, 1, 3] if ragged else [0, 1, 2, 3, 4])
    drafts = torch.full((5, 4), -1)
    for request, length in enumerate(num_draft_tokens):
        for i in range(length):
            row = near[slots[request], i]
            row.mul_(0.5).add_(logits[starts[request] + i, :narrow].float())
            drafts[request, i] = torch.multinomial(row.softmax(-1), 1, generator=noise)
    drafts[2, 2 + seed % 2] = vocab_size
    logits[starts[4] + 1 + seed, 7] = torch.nan
    filters: dict[str, Any] = {"top_k": 20, "top_p": 0.9} if filtered else {}
    params = [
        SamplingParams(seed=2**63 + 10 * seed + i, temperature=t, **(filters if i % 2 else {}))
        for i, t in enumerate((0.8, 0.0, 1.0, 0.7, 1.3))
    ]
    if filtered:
        params[4] = SamplingParams(seed=seed, temperature=1.2, min_p=0.01, top_p=0.95)
        params[2] = SamplingParams(seed=seed, temperature=1.1, top_p=0.8)
    batch = VerifyBatch(
        target_logits=logits,
        cu_num_logits=starts,
        draft_token_ids=drafts,
        positions=torch.tensor([5, 99, 0, 1234, 77], dtype=torch.int32),
        draft_logits=near.to(torch.bfloat16),
        slot_ids=slots if ragged else None,
    )
    return batch, SamplingTensors.stack(params)


def refused_batch(seed: int) -> tuple[VerifyBatch, SamplingTensors]:
    """Eight requests with rows of several forms, which block verification often refuses in part.

    Rows can be read by whole vectors, and the draft has the target's vocabulary.
    """
    noise = torch.Generator().manual_seed(seed)
    num_reqs, num_drafts, vocab_size = 8, 3, 17_160
    target = 2 * torch.randn(num_reqs, num_drafts + 1, vocab_size, generator=noise)
    peaks = torch.randint(vocab_size, (num_reqs, num_drafts + 1, 8), generator=noise)
    heights = torch.rand(peaks.shape, generator=noise) * (12 if seed % 2 else 4)
    target.scatter_add_(2, peaks, heights + 2)
    beside = torch.randn(num_reqs, num_drafts, vocab_size, generator=noise)
    draft = (target[:, :-1] + (0.7 if seed % 3 else 1.5) * beside).bfloat16()
    temperatures = [(0.8, 1.0, 1.5, 3.0)[i % 4] for i in range(num_reqs)]
    laws = (draft.float() / torch.tensor(temperatures)[:, None, None]).softmax(-1)
    drafts = torch.multinomial(laws.flatten(0, 1), 1, generator=noise)
    params = [
        SamplingParams(seed=100 * seed + i, temperature=t) for i, t in enumerate(temperatures)
    ]
    batch = VerifyBatch.dense(
        target_logits=target.bfloat16(),
        draft_token_ids=drafts.view(num_reqs, num_drafts),
        positions=torch.arange(num_reqs),
        draft_logits=draft,
    )
    return batch, SamplingTensors.stack(params)
