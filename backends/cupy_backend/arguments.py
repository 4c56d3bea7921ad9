"""From a batch to the numbers that its kernels are launched with, and addresses that stay.

Works for tensors of any device, so that a host build can be run with the same arguments.
"""

from typing import Any

import torch
from attrs import asdict, evolve
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import check_fits
from ...core.errors import UnavailableError
from ...core.output import Status
from ...core.policies import Block, Fly, Policy, Strict, Synthetic, Typical
from ...core.randomness import Stream
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from .job import Fields, Job
from .layout import Extent
from .params import MAX_RATES
from .variant import (
    ANY_CHANGE,
    LOGIT_TYPES,
    LOSSY,
    MASKS,
    NO_CHANGE,
    POLICIES,
    Variant,
    policy_number,
)

MOST_NAMED = 32
"""Biases that a warp looks for in each block; for more, ids are marked before rows are read."""
_INTEGERS = ("positions", "slot_ids", "cu_num_logits", "draft_token_ids", "allowed_rows")
"""Tensors of a batch, as far as it has them, of int32 or int64 and any stride."""


def job_of(
    batch: VerifyBatch | SampleBatch, params: SamplingTensors, policy: Policy | None = None
) -> Job:
    """What a call is told: a verification or, without a policy, one draw per request.

    Raises:
        InvalidInputError: the parameters are not for this batch.
        UnavailableError: the kernels lack the policy, or the draft is longer than they can judge.
    """
    if isinstance(batch, VerifyBatch):
        assert policy is not None
        return _verify_job(batch, params, policy)
    return _sample_job(batch, params)


def _verify_job(batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Job:
    check_fits(batch, params)
    number, target = policy_number(policy), params.target
    logits, drafts, draft_logits = batch.target_logits, batch.draft_token_ids, batch.draft_logits
    if batch.max_spec_len > MAX_RATES:
        raise UnavailableError(
            f"draft_token_ids.shape[1]: backend cupy verifies at most {MAX_RATES} draft tokens, "
            f"got {batch.max_spec_len}"
        )
    if target.all_greedy and policy.greedy_is_strict:
        number = POLICIES.index(Strict)
    is_greedy = params.draft.all_greedy or target.all_greedy
    if is_greedy or not policy.uses_draft_probs or batch.max_spec_len == 0:
        draft_logits = None
    extent = Extent(
        num_reqs=batch.num_reqs,
        max_spec_len=batch.max_spec_len,
        vocab_size=batch.vocab_size,
        draft_vocab_size=0 if draft_logits is None else draft_logits.shape[-1],
        sums_each=2 if POLICIES[number] in LOSSY else int(POLICIES[number] is Block),
        greedy=target.all_greedy and POLICIES[number] is Strict,
        filtered=_has_filters(target) or (draft_logits is not None and _has_filters(params.draft)),
        marked=_is_marked(params),
    )
    variant = Variant.of(logits, draft_logits, _change(batch, params))
    tells_entropies = not extent.filtered and variant.change == NO_CHANGE
    fields = _fields(batch, params, target, logits, extent)
    fields |= {
        "policy": number,
        "ends_early": POLICIES[number] is Strict,
        "tells_entropies": POLICIES[number] is Typical and tells_entropies,
        "draft_step": drafts.stride(1) * drafts.itemsize,
        "stream": Stream.TARGET,
        "invalid_status": Status.TARGET_LOGITS_INVALID,
        **_recipe("draft", params.draft),
        **_numbers(policy),
    }
    if draft_logits is not None:
        slot, row, _ = draft_logits.stride()
        fields |= {
            "dense": True,
            "draft_type": LOGIT_TYPES.index(draft_logits.dtype),
            "draft_slot_stride": slot * draft_logits.itemsize,
            "draft_row_stride": row * draft_logits.itemsize,
        }
    return Job(variant, extent, fields)


def _sample_job(batch: SampleBatch, params: SamplingTensors) -> Job:
    """A strict verification without a draft."""
    check_fits(batch, params)
    recipe, flawed = params.target, Status.TARGET_LOGITS_INVALID
    if batch.draft_index is not None:
        recipe, flawed = params.draft, Status.DRAFT_LOGITS_INVALID
        params = evolve(params, bias=None, penalties=None, num_logprobs=None)
    extent = Extent(
        num_reqs=batch.num_reqs,
        max_spec_len=0,
        vocab_size=batch.vocab_size,
        greedy=recipe.all_greedy and batch.draft_to_target is None,
        filtered=_has_filters(recipe),
        marked=_is_marked(params),
    )
    fields = _fields(batch, params, recipe, batch.logits, extent)
    fields |= {
        "policy": POLICIES.index(Strict),
        "ends_early": True,
        "stream": batch.stream,
        "draft_index": 0 if batch.stream is Stream.TARGET else batch.draft_index or 0,
        "invalid_status": flawed,
    }
    return Job(Variant.of(batch.logits, None, _change(batch, params)), extent, fields)


def _has_filters(recipe: RecipeTensors) -> bool:
    return not recipe.all_greedy and (recipe.any_min_p or recipe.any_top_k or recipe.any_top_p)


def _is_marked(params: SamplingTensors) -> bool:
    num_bias = 0 if params.bias is None else params.bias.token_ids.shape[1]
    return params.penalties is not None or num_bias > MOST_NAMED


def _change(batch: VerifyBatch | SampleBatch, params: SamplingTensors) -> int:
    if params.bias is not None or params.penalties is not None:
        return ANY_CHANGE
    return NO_CHANGE if batch.allowed_tokens is None else MASKS


def _fields(
    batch: VerifyBatch | SampleBatch,
    params: SamplingTensors,
    recipe: RecipeTensors,
    logits: Tensor,
    extent: Extent,
) -> Fields:
    """What any call is told."""
    sizes = ("num_reqs", "max_spec_len", "vocab_size", "draft_vocab_size", "filtered")
    return {
        **{size: getattr(extent, size) for size in sizes},
        "dense": False,
        "target_stride": logits.stride(0) * logits.itemsize,
        "target_type": LOGIT_TYPES.index(logits.dtype),
        "target_elements": logits.shape[1],
        "seeds": params.seeds.data_ptr(),
        "processed": params.logprobs_processed.data_ptr(),
        **_integers(batch, params),
        **_recipe("target", recipe),
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
    """What is done to logits of the target, and what is told of its tokens."""
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
