"""Logits that look like a language model's, and drafts that were really drawn from the draft.

A few tokens stand out of a broad rest, and the draft nearly agrees with the target. It refuses to
choose kernels.
"""

import torch
from attrs import asdict, evolve, frozen
from torch import Tensor

from ....core.batch import SampleBatch, VerifyBatch
from ....core.policies import Policy
from ....core.ports import Sampler
from ....core.sampling_params import Recipe, SamplingParams
from ....core.sampling_tensors import SamplingTensors
from .workload import DTYPES, Workload

LOGIT_SCALE = 2.0
NUM_PEAKS = 8
LOWEST_PEAK, HIGHEST_PEAK = 6.0, 20.0
DRAFT_NOISE = 0.7
ROWS_AT_ONCE = 128
"""Drafting works in float32 and sorts; so many rows of it fit beside the logits."""


@frozen(eq=False)
class Logits:
    """What two models said about one batch.

    Attributes:
        target: [num_reqs, K + 1, vocab_size].
        draft: [num_reqs, K, vocab_size].
    """

    target: Tensor
    draft: Tensor

    @classmethod
    def random(cls, workload: Workload, noise: torch.Generator) -> "Logits":
        """Rows of N(0, 2²) with eight peaks of 6 to 20; the draft adds N(0, 0.7²)."""
        num_drafts, dtype = workload.num_spec_tokens, DTYPES[workload.dtype]
        shape = (workload.num_reqs, num_drafts + 1, workload.vocab_size)
        device = noise.device
        target = LOGIT_SCALE * torch.randn(shape, generator=noise, device=device)
        places = (*shape[:2], NUM_PEAKS)
        where = torch.randint(shape[2], places, generator=noise, device=device)
        heights = torch.empty(places, device=device)
        heights.uniform_(LOWEST_PEAK, HIGHEST_PEAK, generator=noise)
        target.scatter_add_(2, where, heights)
        draft = torch.empty((shape[0], num_drafts, shape[2]), device=device)
        draft.normal_(0, DRAFT_NOISE, generator=noise).add_(target[:, :num_drafts])
        return cls(target.to(dtype), draft.to(dtype))


@frozen(eq=False)
class Step:
    """The arguments of one `verify`, and the requests' wishes that they were made from."""

    batch: VerifyBatch
    wishes: tuple[SamplingParams, ...]
    policy: Policy
    params: SamplingTensors

    def first(self, num_reqs: int) -> "Step":
        """The same for the first requests only; views, no copies of logits."""
        batch, wishes = self.batch, self.wishes[:num_reqs]
        few = evolve(
            batch,
            target_logits=batch.target_logits[: len(wishes) * (batch.max_spec_len + 1)],
            cu_num_logits=batch.cu_num_logits[: len(wishes) + 1],
            draft_token_ids=batch.draft_token_ids[: len(wishes)],
            positions=batch.positions[: len(wishes)],
        )
        params = SamplingTensors.stack(wishes, batch.target_logits.device)
        return Step(few, wishes, self.policy, params)


def make_step(workload: Workload, logits: Logits, noise: torch.Generator, sampler: Sampler) -> Step:
    """Draft from the draft's own law and put the batch together.

    The sampler draws the drafts only where they must share the target's noise.
    """
    policy, recipe = workload.make_policy(), workload.recipe
    num_reqs, device = workload.num_reqs, noise.device
    positions = torch.randint(4096, (num_reqs,), generator=noise, device=device)
    seeds = torch.randint(2**62, (num_reqs,), generator=noise, device=device)
    same = SamplingParams(**asdict(recipe))
    wishes = tuple(evolve(same, seed=seed) for seed in seeds.tolist())
    params = SamplingTensors.stack(wishes, device)
    if getattr(policy, "coupled", False):
        drafts = _coupled_drafts(logits.draft, positions, params, policy, sampler)
    else:
        drafts = draw_drafts(logits.draft, recipe, noise)
    batch = VerifyBatch.dense(
        target_logits=logits.target,
        draft_token_ids=drafts,
        positions=positions,
        draft_logits=logits.draft if workload.reads_draft_logits else None,
    )
    return Step(batch, wishes, policy, params)


def draw_drafts(draft_logits: Tensor, recipe: Recipe, noise: torch.Generator) -> Tensor:
    """One token from each row's law, by plain PyTorch: [num_reqs, K] int64."""
    rows = draft_logits.flatten(0, 1)
    drawn = [_draw(part.float(), recipe, noise) for part in rows.split(ROWS_AT_ONCE)]
    if not drawn:
        return torch.empty(draft_logits.shape[:2], dtype=torch.int64, device=noise.device)
    return torch.cat(drawn).view(draft_logits.shape[:2])


def _draw(logits: Tensor, recipe: Recipe, noise: torch.Generator) -> Tensor:
    if recipe.is_greedy:
        return logits.argmax(-1)
    probs = (logits / recipe.temperature).softmax(-1)
    if recipe.min_p > 0:
        probs = _keep(probs, recipe.min_p * probs.amax(-1, keepdim=True))
    if recipe.top_k > 0:
        probs = _keep(probs, probs.topk(recipe.top_k, -1).values[:, -1:])
    if recipe.top_p < 1:
        ordered = probs.sort(-1, descending=True).values
        before = ordered.cumsum(-1) - ordered
        count = (before < recipe.top_p).sum(-1, keepdim=True)
        probs = _keep(probs, ordered.gather(-1, count - 1))
    races = torch.empty_like(probs).exponential_(generator=noise)
    return (probs / races).argmax(-1)


def _keep(probs: Tensor, threshold: Tensor) -> Tensor:
    kept = torch.where(probs >= threshold, probs, 0)
    return kept / kept.sum(-1, keepdim=True)


def _coupled_drafts(
    draft_logits: Tensor,
    positions: Tensor,
    params: SamplingTensors,
    policy: Policy,
    sampler: Sampler,
) -> Tensor:
    columns = [
        sampler.sample(
            SampleBatch(
                logits=draft_logits[:, place],
                positions=positions + place,
                draft_index=place + 1,
                draft_stream=policy.draft_stream,
            ),
            params,
        ).token_ids
        for place in range(draft_logits.shape[1])
    ]
    if not columns:
        return torch.empty(draft_logits.shape[:2], dtype=torch.int64, device=positions.device)
    return torch.stack(columns, 1)
