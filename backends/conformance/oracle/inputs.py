"""A batch taken apart into requests of NumPy arrays."""

from itertools import pairwise

import numpy as np
import torch
from attrs import evolve
from torch import Tensor

from ....core.batch import SampleBatch, VerifyBatch
from ....core.output import Status
from ....core.sampling_params import Recipe
from ....core.sampling_tensors import RecipeTensors, SamplingTensors
from ....core.token_counts import TokenCounts
from .filters import Flags, Floats
from .law import Adjustments, Integers
from .view import RequestView


def split_verify(batch: VerifyBatch, params: SamplingTensors) -> list[RequestView]:
    """The requests of a batch, in its order."""
    logits, drafted = _floats(batch.target_logits), _integers(batch.draft_token_ids)
    draft = None if batch.draft_logits is None else _floats(batch.draft_logits)
    width = batch.vocab_size if draft is None else draft.shape[-1]
    slots, entries = (
        range(batch.num_reqs) if ids is None else ids.tolist()
        for ids in (batch.slot_ids, params.slot_ids)
    )
    counts = batch.token_counts or TokenCounts.empty(max(slots, default=-1) + 1, batch.vocab_size)
    of_requests = zip(pairwise(batch.cu_num_logits.tolist()), slots, entries, strict=True)
    return [
        RequestView(
            target_logits=logits[start:end],
            vocab_size=batch.vocab_size,
            first_position=int(batch.positions[request]),
            # As they were before two's complement.
            seed=int(params.seeds[entry]) % 2**64,
            recipe=_recipe(params.target, entry),
            draft_recipe=_recipe(params.draft, entry),
            adjustments=_adjustments(params, entry),
            in_prompt=counts.prompt_mask[slot].numpy(),
            output_counts=_integers(counts.output_counts[slot]),
            allowed=[_mask(batch, row) for row in range(start, end)],
            logprobs_processed=bool(params.logprobs_processed[entry]),
            draft_token_ids=drafted[request, : end - start - 1],
            draft_logits=None if draft is None else draft[slot, : end - start - 1],
            draft_to_target=_id_map(batch.draft_to_target, width),
        )
        for request, ((start, end), slot, entry) in enumerate(of_requests)
    ]


def split_sample(batch: SampleBatch, params: SamplingTensors) -> list[RequestView]:
    """The rows of a batch, in its order: each as a verification of a draft of no tokens."""
    rows = VerifyBatch(
        target_logits=batch.logits,
        cu_num_logits=torch.arange(batch.num_reqs + 1),
        draft_token_ids=torch.zeros(batch.num_reqs, 0, dtype=torch.int64),
        positions=batch.positions,
        slot_ids=batch.slot_ids,
        token_counts=batch.token_counts,
        allowed_tokens=batch.allowed_tokens,
        allowed_rows=batch.allowed_rows,
    )
    drawn = [evolve(view, bonus_name="drawn token") for view in split_verify(rows, params)]
    if batch.draft_index is None:
        return drawn
    # The draft has its own recipe and ids, and neither bias nor penalties.
    return [
        evolve(
            view,
            vocab_size=batch.target_vocab_size or view.vocab_size,
            target_ids=_id_map(batch.draft_to_target, view.vocab_size),
            first_index=batch.draft_index,
            stream=int(batch.stream),
            recipe=view.draft_recipe,
            adjustments=Adjustments(),
            invalid=Status.DRAFT_LOGITS_INVALID,
        )
        for view in drawn
    ]


def _floats(tensor: Tensor) -> Floats:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _integers(tensor: Tensor) -> Integers:
    return tensor.cpu().numpy().astype(np.int64)


def _mask(batch: VerifyBatch, row: int) -> Flags | None:
    """The mask of a row of logits."""
    masks, rows = batch.allowed_tokens, batch.allowed_rows
    place = row if rows is None else int(rows[row])
    if masks is None or place < 0:
        return None
    # Bits of a byte from the lowest on, and bytes of a word from the lowest on, wherever this runs.
    words = masks[place].numpy().astype("<i4")
    flags = np.unpackbits(words.view(np.uint8), count=batch.vocab_size, bitorder="little")
    return flags.astype(bool)


def _id_map(draft_to_target: Tensor | None, draft_vocab_size: int) -> Integers:
    """The target id of each draft id."""
    return np.arange(draft_vocab_size) if draft_to_target is None else _integers(draft_to_target)


def _recipe(recipes: RecipeTensors, request: int) -> Recipe:
    """The numbers that float32 tensors hold."""
    names = ("temperature", "min_p", "top_k", "top_p")
    return Recipe(**{name: getattr(recipes, name)[request].item() for name in names})


def _adjustments(params: SamplingTensors, request: int) -> Adjustments:
    bias = {}
    if params.bias is not None:
        tensors = params.bias.token_ids, params.bias.values
        pairs = zip(*(rows[request].tolist() for rows in tensors), strict=True)
        bias = {token_id: value for token_id, value in pairs if token_id >= 0}
    if params.penalties is None:
        return Adjustments(bias)
    names = ("repetition", "presence", "frequency")
    return Adjustments(bias, *(getattr(params.penalties, n)[request].item() for n in names))
