"""A batch taken apart into requests of NumPy arrays; it refuses to interpret them."""

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
    requests = []
    for request, (start, end) in enumerate(pairwise(starts)):
        slot = slot_of(batch.slot_ids, request)
        count = end - start - 1
        in_prompt, counts = seen(batch.token_counts, slot, batch.vocab_size)
        requests.append(
            RequestInputs(
                target_logits=logits[start:end],
                draft_token_ids=batch.draft_token_ids[request, :count]
                .cpu()
                .numpy()
                .astype(np.int64),
                draft_logits=None if draft is None else draft[slot, :count],
                draft_to_target=id_map(batch.draft_to_target, width),
                first_position=int(batch.positions[request]),
                seed=seed_of(params, request),
                recipe=recipe_of(params.target, request),
                draft_recipe=recipe_of(params.draft, request),
                adjustments=adjustments_of(params, request),
                in_prompt=in_prompt,
                output_counts=counts,
            )
        )
    return requests


def floats(tensor: Tensor) -> Floats:
    """The same numbers in float64 on the host."""
    return tensor.detach().to("cpu", torch.float64).numpy()


def slot_of(slot_ids: Tensor | None, request: int) -> int:
    """Where a request lives in caches."""
    return request if slot_ids is None else int(slot_ids[request])


def id_map(draft_to_target: Tensor | None, draft_vocab_size: int) -> Integers:
    """The target id of each draft id."""
    if draft_to_target is None:
        return np.arange(draft_vocab_size)
    return draft_to_target.cpu().numpy()


def seed_of(params: SamplingTensors, request: int) -> int:
    """The seed as it was before two's complement."""
    return int(params.seeds[request]) % 2**64


def recipe_of(recipes: RecipeTensors, request: int) -> Recipe:
    """The numbers that float32 tensors hold."""
    return Recipe(
        temperature=float(recipes.temperature[request]),
        min_p=float(recipes.min_p[request]),
        top_k=int(recipes.top_k[request]),
        top_p=float(recipes.top_p[request]),
    )


def adjustments_of(params: SamplingTensors, request: int) -> Adjustments:
    """Bias and penalties of one request."""
    bias = {}
    if params.bias is not None:
        entries = zip(
            params.bias.token_ids[request].tolist(),
            params.bias.values[request].tolist(),
            strict=True,
        )
        bias = {token_id: value for token_id, value in entries if token_id >= 0}
    if params.penalties is None:
        return Adjustments(bias)
    return Adjustments(
        bias,
        repetition=float(params.penalties.repetition[request]),
        presence=float(params.penalties.presence[request]),
        frequency=float(params.penalties.frequency[request]),
    )


def seen(counts: TokenCounts | None, slot: int, vocab_size: int) -> tuple[Flags, Integers]:
    """What a slot's penalties count: prompt flags and output counts, [V] each."""
    if counts is None:
        return np.zeros(vocab_size, dtype=bool), np.zeros(vocab_size, dtype=np.int64)
    return (
        counts.prompt_mask[slot].cpu().numpy(),
        counts.output_counts[slot].cpu().numpy().astype(np.int64),
    )
