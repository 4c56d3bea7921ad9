"""A sampler that checks the values it is given, to find the mistakes of an embedding.

Batches check shapes only, because reading a value waits for the device. This one waits in every
call.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..core import InvalidInputError, Policy, SampleBatch, Sampler, SamplingTensors, VerifyBatch
from ..core.call_memory import check_fits
from .both_verbs import BothVerbs, Output, Verb
from .inverse_maps import check_map

_SUM_TOLERANCE = 1e-2
"""How far from 1 the sum of bfloat16 probabilities may be."""


@frozen(eq=False)
class CheckedSampler(BothVerbs):
    """A `Sampler` that checks a call's values, then passes the call on to another sampler.

    Raises:
        InvalidInputError: rows, slots, masks, positions, ids or an id map leave their range, or
            logits are probabilities.

    Attributes:
        sampler: the one that does the work.
    """

    sampler: Sampler

    def _run(
        self, verb: Verb, given: tuple[Any, ...], out: Output | None, workspace: Tensor | None
    ) -> Output:
        batch, params, *_ = given
        check_values(batch, params)
        call: Callable[..., Output] = getattr(self.sampler, verb.name)
        return call(*given, out=out, workspace=workspace)

    def _num_bytes(self, batch: Any, params: SamplingTensors, policy: Policy | None = None) -> int:
        if policy is None:
            return self.sampler.sample_workspace_size(batch, params)
        return self.sampler.verify_workspace_size(batch, params, policy)


def check_values(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` for the first value of a call that cannot be right."""
    check_fits(batch, params)
    name = "target_logits" if isinstance(batch, VerifyBatch) else "logits"
    check_places(batch, params)
    _check_range("positions", batch.positions, 0)
    _check_logits(name, getattr(batch, name))
    # A draft draw uses no bias.
    if params.bias is not None and getattr(batch, "draft_index", None) is None:
        _check_range("logit_bias: token id", params.bias.token_ids, -1, batch.vocab_size)
    if batch.draft_to_target is not None:
        check_map(batch.draft_to_target, batch.vocab_size)
    if isinstance(batch, VerifyBatch) and batch.draft_logits is not None:
        slots = _slots(batch)
        for request, num_rows in enumerate(batch.cu_num_logits.diff().tolist()):
            rows = batch.draft_logits[slots[request], : max(num_rows - 1, 0)]
            _check_logits("draft_logits", rows)


def check_places(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> None:
    """Raise `InvalidInputError` for rows, masks or slots that are not there."""
    if isinstance(batch, VerifyBatch):
        _check_rows(batch)
    if batch.allowed_tokens is not None and batch.allowed_rows is not None:
        _check_range("allowed_rows", _mask_rows(batch), -1, len(batch.allowed_tokens))
    if params.slot_ids is not None:
        _check_range("params.slot_ids", params.slot_ids, 0, len(params.seeds))
    if batch.token_counts is not None:
        _check_range("slot_ids", _slots(batch), 0, len(batch.token_counts.prompt_mask))
    if isinstance(batch, VerifyBatch) and batch.draft_logits is not None:
        _check_range("slot_ids", _slots(batch), 0, len(batch.draft_logits))


def _slots(batch: VerifyBatch | SampleBatch) -> Tensor:
    return torch.arange(batch.num_reqs) if batch.slot_ids is None else batch.slot_ids


def _mask_rows(batch: VerifyBatch | SampleBatch) -> Tensor:
    """The masks of the requests' rows; rows after them do not matter. -1 where there is none."""
    assert batch.allowed_rows is not None
    end = int(batch.cu_num_logits[-1]) if isinstance(batch, VerifyBatch) else batch.num_reqs
    return batch.allowed_rows[:end].clamp(min=-1)


def _check_rows(batch: VerifyBatch) -> None:
    starts = batch.cu_num_logits.tolist()
    if starts[0] != 0 or starts[-1] > len(batch.target_logits):
        raise InvalidInputError(
            f"cu_num_logits: expected 0 first and at most {len(batch.target_logits)} last, "
            f"got {starts[0]} and {starts[-1]}"
        )
    _check_range("num_logits of a request", batch.cu_num_logits.diff(), 0, batch.max_spec_len + 2)


def _check_range(name: str, values: Tensor, low: int, end: int | None = None) -> None:
    """Check that all values lie in [low, end)."""
    wrong = values < low if end is None else (values < low) | (values >= end)
    if bool(wrong.any()):
        interval = f"at least {low}" if end is None else f"in [{low}, {end - 1}]"
        raise InvalidInputError(
            f"{name}: expected integers {interval}, got {int(values[wrong][0])}"
        )


def _check_logits(name: str, rows: Tensor) -> None:
    if rows.numel() == 0:
        return
    values = rows.float()
    bounded = (values >= 0).all(-1) & (values <= 1).all(-1)
    if bool((bounded & ((values.sum(-1) - 1).abs() <= _SUM_TOLERANCE)).any()):
        raise InvalidInputError(f"{name}: expected raw logits, got probabilities; take their log")
