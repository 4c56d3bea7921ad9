"""A batch taken apart into requests of NumPy arrays."""

from itertools import pairwise
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from ....core.batch import SampleBatch, VerifyBatch
from ....core.output import Status
from ....core.sampling_params import Recipe
from ....core.sampling_tensors import RecipeTensors, SamplingTensors
from .filters import Flags
from .law import Adjustments, Integers
from .noise import Floats
from .view import RequestView


def split_verify(batch: VerifyBatch, params: SamplingTensors) -> list[RequestView]:
    """The requests of a batch, in its order."""
    logits, drafted = _floats(batch.target_logits), _integers(batch.draft_token_ids)
    draft = None if batch.draft_logits is None else _floats(batch.draft_logits)
    width = batch.vocab_size if draft is None else draft.shape[-1]
    requests = []
    starts = pairwise(batch.cu_num_logits.tolist())
    for request, ((start, end), slot) in enumerate(zip(starts, _slots(batch), strict=True)):
        count = end - start - 1
        requests.append(
            RequestView(
                target_logits=logits[start:end],
                vocab_size=batch.vocab_size,
                draft_token_ids=drafted[request, :count],
                draft_logits=None if draft is None else draft[slot, :count],
                draft_to_target=_id_map(batch.draft_to_target, width),
                allowed=[_mask(batch, row, batch.vocab_size) for row in range(start, end)],
                **_asked(batch, params, request, slot),
            )
        )
    return requests


def split_sample(batch: SampleBatch, params: SamplingTensors) -> list[RequestView]:
    """The rows of a batch, in its order."""
    logits = _floats(batch.logits)
    requests = [
        RequestView(
            target_logits=logits[request : request + 1],
            vocab_size=batch.target_vocab_size or logits.shape[1],
            bonus_name="drawn token",
            allowed=[_mask(batch, request, logits.shape[1])],
            **_asked(batch, params, request, slot),
        )
        for request, slot in enumerate(_slots(batch))
    ]
    if batch.draft_index is None:
        return requests
    return [_as_draft(each, batch, batch.draft_index) for each in requests]


def _as_draft(view: RequestView, batch: SampleBatch, index: int) -> RequestView:
    """The draft has its own recipe and ids, and neither bias nor penalties."""
    return attrs.evolve(
        view,
        target_ids=_id_map(batch.draft_to_target, batch.logits.shape[1]),
        first_index=index,
        stream=int(batch.stream),
        recipe=view.draft_recipe,
        adjustments=Adjustments(),
        invalid=Status.DRAFT_LOGITS_INVALID,
    )


def _slots(batch: VerifyBatch | SampleBatch) -> list[int]:
    """Where each request lives in caches."""
    slots: list[int]
    slots = [*range(batch.num_reqs)] if batch.slot_ids is None else batch.slot_ids.tolist()
    return slots


def _asked(
    batch: VerifyBatch | SampleBatch, params: SamplingTensors, request: int, slot: int
) -> dict[str, Any]:
    """What a request wants and what was counted of it, whatever is to be drawn."""
    width = (
        batch.target_logits.shape[1] if isinstance(batch, VerifyBatch) else batch.logits.shape[1]
    )
    counts = batch.token_counts
    own = request if params.slot_ids is None else int(params.slot_ids[request])
    return {
        "first_position": int(batch.positions[request]),
        # As they were before two's complement.
        "seed": int(params.seeds[own]) % 2**64,
        "recipe": _recipe(params.target, own),
        "draft_recipe": _recipe(params.draft, own),
        "adjustments": _adjustments(params, own),
        "logprobs_processed": bool(params.logprobs_processed[own]),
        "in_prompt": np.zeros(width, bool) if counts is None else counts.prompt_mask[slot].numpy(),
        "output_counts": np.zeros(width, np.int64)
        if counts is None
        else _integers(counts.output_counts[slot]),
    }


def _floats(tensor: Tensor) -> Floats:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _integers(tensor: Tensor) -> Integers:
    return tensor.cpu().numpy().astype(np.int64)


def _mask(batch: VerifyBatch | SampleBatch, row: int, vocab_size: int) -> Flags | None:
    """The mask of a row of logits."""
    masks, rows = batch.allowed_tokens, batch.allowed_rows
    place = row if rows is None else int(rows[row])
    if masks is None or place < 0:
        return None
    # Bits of a byte from the lowest on, and bytes of a word from the lowest on, wherever this runs.
    words = masks[place].numpy().astype("<i4")
    flags = np.unpackbits(words.view(np.uint8), count=vocab_size, bitorder="little")
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
