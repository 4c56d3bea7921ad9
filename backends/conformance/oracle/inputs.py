"""A batch taken apart into requests of NumPy arrays."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ....core.batch import VerifyBatch
from ....core.sampling_params import Recipe
from ....core.sampling_tensors import RecipeTensors, SamplingTensors
from ....core.token_counts import TokenCounts
from .filters import Flags
from .law import Adjustments, Integers
from .noise import Floats


@frozen(eq=False)
class RequestInputs:
    """One request's share of a batch.

    Attributes:
        target_logits: [K + 1, V], raw.
        draft_token_ids: [K] as they came, bad ones too.
        draft_logits: [K, draft V], raw; None if the draft is one-hot.
        draft_to_target: [draft V], the target id of each draft id.
        first_position: what the first row decides.
        seed: 64 bits.
        recipe, draft_recipe: from logits to p and q.
        adjustments: bias and penalties.
        in_prompt, output_counts: [V], what penalties count.
    """

    target_logits: Floats
    draft_token_ids: Integers
    draft_logits: Floats | None
    draft_to_target: Integers
    first_position: int
    seed: int
    recipe: Recipe
    draft_recipe: Recipe
    adjustments: Adjustments
    in_prompt: Flags
    output_counts: Integers

    @property
    def vocab_size(self) -> int:
        """The target's V."""
        return int(self.target_logits.shape[1])


def split_verify(batch: VerifyBatch, params: SamplingTensors) -> list[RequestInputs]:
    """The requests of a batch, in its order."""
    logits, starts = floats(batch.target_logits), batch.cu_num_logits.tolist()
    draft = None if batch.draft_logits is None else floats(batch.draft_logits)
    width = batch.vocab_size if draft is None else draft.shape[-1]
    draft_token_ids = batch.draft_token_ids.cpu().numpy().astype(np.int64)
    slots = slots_of(batch.slot_ids, batch.num_reqs)
    positions, recipes = batch.positions.tolist(), recipes_of(params.target)
    draft_recipes, adjustments = recipes_of(params.draft), adjustments_of(params)
    requests = []
    for request, (start, end) in enumerate(pairwise(starts)):
        count, slot = end - start - 1, slots[request]
        in_prompt, counts = seen(batch.token_counts, slot, batch.vocab_size)
        requests.append(
            RequestInputs(
                target_logits=logits[start:end],
                draft_token_ids=draft_token_ids[request, :count],
                draft_logits=None if draft is None else draft[slot, :count],
                draft_to_target=id_map(batch.draft_to_target, width),
                first_position=positions[request],
                seed=seeds_of(params)[request],
                recipe=recipes[request],
                draft_recipe=draft_recipes[request],
                adjustments=adjustments[request],
                in_prompt=in_prompt,
                output_counts=counts,
            )
        )
    return requests


def floats(tensor: Tensor) -> Floats:
    """The same numbers in float64 on the host."""
    return tensor.detach().to("cpu", torch.float64).numpy()


def slots_of(slot_ids: Tensor | None, num_reqs: int) -> Sequence[int]:
    """Where each request lives in caches."""
    if slot_ids is None:
        return range(num_reqs)
    slots: list[int] = slot_ids.tolist()
    return slots


def id_map(draft_to_target: Tensor | None, draft_vocab_size: int) -> Integers:
    """The target id of each draft id."""
    if draft_to_target is None:
        return np.arange(draft_vocab_size)
    return draft_to_target.cpu().numpy()


def seeds_of(params: SamplingTensors) -> list[int]:
    """The seeds as they were before two's complement."""
    return [seed % 2**64 for seed in params.seeds.tolist()]


def recipes_of(recipes: RecipeTensors) -> list[Recipe]:
    """The numbers that float32 tensors hold, request by request."""
    columns = (recipes.temperature, recipes.min_p, recipes.top_k, recipes.top_p)
    return [
        Recipe(temperature=temperature, min_p=min_p, top_k=top_k, top_p=top_p)
        for temperature, min_p, top_k, top_p in zip(*(c.tolist() for c in columns), strict=True)
    ]


def adjustments_of(params: SamplingTensors) -> list[Adjustments]:
    """Bias and penalties, request by request."""
    biases: list[dict[int, float]] = [{} for _ in range(params.num_reqs)]
    if params.bias is not None:
        rows = zip(params.bias.token_ids.tolist(), params.bias.values.tolist(), strict=True)
        biases = [
            {token_id: value for token_id, value in zip(*row, strict=True) if token_id >= 0}
            for row in rows
        ]
    if params.penalties is None:
        return [Adjustments(bias) for bias in biases]
    penalties = params.penalties
    columns = (penalties.repetition, penalties.presence, penalties.frequency)
    values = zip(biases, *(column.tolist() for column in columns), strict=True)
    return [Adjustments(*value) for value in values]


def seen(counts: TokenCounts | None, slot: int, vocab_size: int) -> tuple[Flags, Integers]:
    """What a slot's penalties count: prompt flags and output counts, [V] each."""
    if counts is None:
        return np.zeros(vocab_size, dtype=bool), np.zeros(vocab_size, dtype=np.int64)
    return (
        counts.prompt_mask[slot].cpu().numpy(),
        counts.output_counts[slot].cpu().numpy().astype(np.int64),
    )
