"""Turns a batch into the numbers and lasting addresses that its kernels are launched with.

It works for tensors on any device, so that a host build can run with the same arguments.
"""

from typing import Any

import torch
from attrs import asdict

from ...core import Block, Fly, Policy, Strict, Synthetic, Typical
from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import check_fits
from ...core.errors import UnavailableError
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from ..step import Step, step_of
from .job import Fields, Job
from .layout import Extent
from .params import MAX_RATES
from .variant import ANY_CHANGE, LOGIT_TYPES, LOSSY, MASKS, NO_CHANGE, Variant, policy_number

MOST_NAMED = 32
"""The most biases that a warp looks for in each block; if there are more, ids are marked first."""
_INTEGERS = ("positions", "slot_ids", "cu_num_logits", "draft_token_ids", "allowed_rows")
"""The tensors of a batch that are int32 or int64 with any stride; some may be missing."""


def job_of(
    batch: VerifyBatch | SampleBatch, params: SamplingTensors, policy: Policy | None = None
) -> Job:
    """Describe a verification or, without a policy, one draw per request.

    Raises:
        InvalidInputError: the parameters are not for this batch.
        UnavailableError: the kernels lack the policy, or the draft is longer than they can judge.
    """
    check_fits(batch, params)
    step = step_of(batch, params, policy)
    number, policy, draft_logits = policy_number(step.policy), step.policy, step.draft_logits
    if step.num_drafts > MAX_RATES:
        raise UnavailableError(
            f"draft_token_ids.shape[1]: backend cupy verifies at most {MAX_RATES} draft tokens, "
            f"got {step.num_drafts}"
        )
    extent = _extent(batch, step)
    variant = Variant.of(step.logits, draft_logits, _change(batch, step.params))
    tells_entropies = not extent.filtered and variant.change == NO_CHANGE
    fields = _fields(batch, step, extent) | {
        "policy": number,
        "ends_early": type(policy) is Strict,
        "tells_entropies": type(policy) is Typical and tells_entropies,
        "stream": step.stream,
        "draft_index": step.draft_index,
        "invalid_status": step.invalid,
        **_numbers(policy),
    }
    if isinstance(batch, VerifyBatch):
        drafts = batch.draft_token_ids
        fields |= {"draft_step": drafts.stride(1) * drafts.itemsize}
        fields |= _recipe("draft", params.draft)
    if draft_logits is not None:
        slot, row, _ = draft_logits.stride()
        fields |= {
            "dense": True,
            "draft_type": LOGIT_TYPES.index(draft_logits.dtype),
            "draft_slot_stride": slot * draft_logits.itemsize,
            "draft_row_stride": row * draft_logits.itemsize,
        }
    return Job(variant, extent, fields)


def _extent(batch: VerifyBatch | SampleBatch, step: Step) -> Extent:
    target, draft_logits, kind = step.params.target, step.draft_logits, type(step.policy)
    is_mapped = isinstance(batch, SampleBatch) and batch.draft_to_target is not None
    reads_draft = draft_logits is not None
    return Extent(
        num_reqs=batch.num_reqs,
        max_spec_len=step.num_drafts,
        vocab_size=batch.vocab_size,
        draft_vocab_size=0 if draft_logits is None else draft_logits.shape[-1],
        sums_each=2 if kind in LOSSY else int(kind is Block),
        greedy=target.all_greedy and kind is Strict and not is_mapped,
        filtered=_has_filters(target) or (reads_draft and _has_filters(step.params.draft)),
        marked=_is_marked(step.params),
        biased=step.params.bias is not None,
    )


def _has_filters(recipe: RecipeTensors) -> bool:
    return not recipe.all_greedy and (recipe.any_min_p or recipe.any_top_k or recipe.any_top_p)


def _is_marked(params: SamplingTensors) -> bool:
    num_bias = 0 if params.bias is None else params.bias.token_ids.shape[1]
    return params.penalties is not None or num_bias > MOST_NAMED


def _change(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> int:
    if params.bias is not None or params.penalties is not None:
        return ANY_CHANGE
    return NO_CHANGE if batch.allowed_tokens is None else MASKS


def _fields(batch: VerifyBatch | SampleBatch, step: Step, extent: Extent) -> Fields:
    """The fields of any call."""
    sizes = ("num_reqs", "max_spec_len", "vocab_size", "draft_vocab_size", "filtered")
    params, logits = step.params, step.logits
    return {
        **{size: getattr(extent, size) for size in sizes},
        "dense": False,
        "target_stride": logits.stride(0) * logits.itemsize,
        "target_type": LOGIT_TYPES.index(logits.dtype),
        "target_elements": logits.shape[1],
        "seeds": params.seeds.data_ptr(),
        "processed": params.logprobs_processed.data_ptr(),
        **_integers(batch, params),
        **_recipe("target", params.target),
        **_changes(batch, params),
    }


def _integers(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> Fields:
    of_batch = {name: getattr(batch, name, None) for name in _INTEGERS}
    fields = {}
    for name, tensor in {**of_batch, "entries": params.slot_ids}.items():
        if tensor is not None:
            fields[f"{name}_stride"] = tensor.stride(0) * tensor.itemsize
            fields[f"{name}_wide"] = tensor.dtype is torch.int64
    return fields


def _recipe(name: str, recipe: RecipeTensors) -> Fields:
    return {
        f"{name}_{part}": getattr(recipe, part).data_ptr()
        for part in ("temperature", "min_p", "top_k", "top_p")
    }


def _changes(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> Fields:
    """The fields for changes of the target's logits, and for logprobs."""
    fields: Fields = {}
    if batch.allowed_tokens is not None:
        fields["allowed_stride"] = batch.allowed_tokens.stride(0) * batch.allowed_tokens.itemsize
    if params.bias is not None:
        fields["bias_ids"] = params.bias.token_ids.data_ptr()
        fields["bias_values"] = params.bias.values.data_ptr()
        fields["num_bias"] = params.bias.token_ids.shape[1]
    if params.num_logprobs is not None:
        fields["num_logprobs"] = params.num_logprobs
    if params.penalties is not None:
        for part in ("repetition", "presence", "frequency"):
            fields[part] = getattr(params.penalties, part).data_ptr()
    return fields


def _numbers(policy: Any) -> Fields:
    told: Fields = asdict(policy, recurse=False)
    if isinstance(policy, Fly):
        told["epsilon"] = policy.min_entropy
    if isinstance(policy, Synthetic):
        told["rates"] = policy.conditional_rates
    return told
