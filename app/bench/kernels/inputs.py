"""Makes batches to verify, with drafts that are really drawn from the draft's own law."""

from functools import partial
from typing import NamedTuple

import torch
from attrs import evolve, frozen
from torch import Tensor

from ....backends.conformance.inputs import target_rows
from ....core import Policy, Sampler, SamplingParams, SamplingTensors, TokenCounts, pack_allowed
from ....core.batch import SampleBatch, VerifyBatch
from .workload import Workload

BAD_VALUES = (torch.nan, torch.inf, -torch.inf, 0.0)
DRAFT_NOISE = 0.7
MIXED = ("lm", "zipf", "flat", "sharp", "ties")


@frozen(eq=False)
class Logits:
    """The logits of two models for one batch.

    Attributes:
        target: [num_reqs, K + 1, vocab_size].
        draft: [num_reqs, K, vocab_size], the target's and N(0, 0.7²); rounded where it ties.
    """

    target: Tensor
    draft: Tensor

    @classmethod
    def random(cls, workload: Workload, noise: torch.Generator) -> "Logits":
        """Rows of the workload's kind; `mixed` takes those of `MIXED` in turn, row by row."""
        num_reqs, num_rows = workload.num_reqs, workload.num_spec_tokens + 1
        vocab_size, dtype = workload.vocab_size, getattr(torch, workload.dtype)
        target = torch.empty((num_reqs * num_rows, vocab_size), dtype=dtype, device=noise.device)
        near = torch.empty_like(target)
        kinds = MIXED if workload.inputs == "mixed" else (workload.inputs,)
        for place, kind in enumerate(kinds):
            rows = target[place :: len(kinds)]
            normal = partial(torch.randn, rows.shape, generator=noise, device=noise.device)
            drawn = target_rows("flat" if kind == "bad" else kind, normal(), noise)
            for first, value in enumerate(BAD_VALUES if kind == "bad" else ()):
                drawn[first :: len(BAD_VALUES)] = value
            rows.copy_(drawn)
            drawn += DRAFT_NOISE * normal()
            near[place :: len(kinds)] = drawn.round_() if kind == "ties" else drawn
        shape = (num_reqs, num_rows, vocab_size)
        # Nothing is drafted after the last row.
        return cls(target.view(shape), near.view(shape)[:, :-1].contiguous())


MAX_POSITION = 4096
PROMPT_SHARE = 0.8
"""Of the tokens that penalties count; the others are output."""


class Step(NamedTuple):
    """The arguments of one `verify`."""

    batch: VerifyBatch
    params: SamplingTensors
    policy: Policy

    def first(self, num_reqs: int) -> "Step":
        """The arguments for the first requests only; the rows of the others stay, unused."""
        few = evolve(
            self.batch,
            cu_num_logits=self.batch.cu_num_logits[: num_reqs + 1],
            draft_token_ids=self.batch.draft_token_ids[:num_reqs],
            positions=self.batch.positions[:num_reqs],
        )
        slot_ids = torch.arange(few.num_reqs, device=self.params.device)
        return Step(few, evolve(self.params, slot_ids=slot_ids), self.policy)


def make_step(workload: Workload, logits: Logits, noise: torch.Generator, sampler: Sampler) -> Step:
    """Let the sampler draw drafts from the draft's own law, and put the batch together."""
    policy, num_reqs, device = workload.make_policy(), workload.num_reqs, noise.device
    penalties = workload.params.has_penalties
    positions = torch.randint(MAX_POSITION, (num_reqs,), generator=noise, device=device)
    params = SamplingTensors.stack(_requests(workload, noise), device)
    drafts = draw_drafts(logits.draft, positions, params, policy, sampler)
    target, masks = logits.target, None
    if workload.allowed < 1:
        allowed = _allowed(workload, drafts, noise)
        if workload.is_masked:
            masks = torch.cat([*map(pack_allowed, allowed)])
        else:
            target = target.masked_fill(~allowed, -torch.inf)
    batch = VerifyBatch.dense(
        target_logits=target,
        draft_token_ids=drafts,
        positions=positions,
        draft_logits=logits.draft if workload.reads_draft_logits else None,
        token_counts=_token_counts(workload, logits, noise) if penalties else None,
        allowed_tokens=masks,
    )
    return Step(batch, params, policy)


def _requests(workload: Workload, noise: torch.Generator) -> tuple[SamplingParams, ...]:
    num_reqs, device = workload.num_reqs, noise.device
    seeds = torch.randint(2**62, (num_reqs,), generator=noise, device=device).tolist()
    shape = (num_reqs, workload.num_biases)
    biased = torch.randint(workload.vocab_size, shape, generator=noise, device=device)
    # Special tokens are often banned, and have the last ids.
    biased[:, ::2] = workload.vocab_size - 1 - torch.arange((shape[1] + 1) // 2, device=device)
    return tuple(
        evolve(workload.params, seed=seed, logit_bias=[(token_id, 1.0) for token_id in token_ids])
        for seed, token_ids in zip(seeds, biased.tolist(), strict=True)
    )


def _allowed(workload: Workload, drafts: Tensor, noise: torch.Generator) -> Tensor:
    """Masks for every row of the target; drafted tokens are allowed, so drafts are not cut."""
    num_reqs, num_tokens = drafts.shape
    shape, device = (num_reqs, num_tokens + 1, workload.vocab_size), noise.device
    allowed = torch.empty(shape, dtype=torch.bool, device=device)
    allowed.bernoulli_(workload.allowed, generator=noise)
    allowed[:, :-1].scatter_(2, drafts[..., None], value=True)
    return allowed


def _token_counts(workload: Workload, logits: Logits, noise: torch.Generator) -> TokenCounts:
    """Counts of a text that the first rows of the target might have written."""
    first = logits.target[:, 0].float().nan_to_num().softmax(-1)
    num_reqs, vocab_size = first.shape
    text = first.multinomial(workload.num_counted, replacement=True, generator=noise)
    prompt_len = round(PROMPT_SHARE * workload.num_counted)
    counts = TokenCounts.empty(num_reqs, vocab_size, noise.device)
    for slot_id, prompt in enumerate(text[:, :prompt_len].tolist()):
        counts.start(slot_id, prompt)
    counts.add(torch.arange(num_reqs, device=noise.device), text[:, prompt_len:])
    return counts


def draw_drafts(
    logits: Tensor, positions: Tensor, params: SamplingTensors, policy: Policy, sampler: Sampler
) -> Tensor:
    """One token from each row's law: [num_reqs, K] int64."""
    drafts = positions.new_empty(logits.shape[:2])
    for place in range(drafts.shape[1]):
        batch = SampleBatch(
            logits=logits[:, place],
            positions=positions + place,
            draft_index=place + 1,
            draft_stream=policy.draft_stream,
        )
        # Rows that no token can be drawn from get a draft token, too.
        drafts[:, place] = sampler.sample(batch, params).token_ids.clamp(min=0)
    return drafts
