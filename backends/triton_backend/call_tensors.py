"""The tensors of a call in one flat tuple, and all else that decides which kernels it takes.

This module refuses to check anything: it is on the way of every eager call.
"""

from typing import Any, NamedTuple

from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from ...core.token_counts import TokenCounts

Leaf = Any
"""A tensor, what stands for it in `replay`, or None where there is none."""


class CallTensors(NamedTuple):
    """Everything that a call reads or writes, workspace and inverse maps aside."""

    logits: Leaf
    cu_num_logits: Leaf
    draft_logits: Leaf
    draft_token_ids: Leaf
    positions: Leaf
    seeds: Leaf
    slot_ids: Leaf
    prompt_mask: Leaf
    output_counts: Leaf
    bias_ids: Leaf
    bias_values: Leaf
    repetition: Leaf
    presence: Leaf
    frequency: Leaf
    temperature: Leaf
    min_p: Leaf
    top_k: Leaf
    top_p: Leaf
    draft_temperature: Leaf
    draft_min_p: Leaf
    draft_top_k: Leaf
    draft_top_p: Leaf
    processed: Leaf
    token_ids: Leaf
    num_accepted: Leaf
    status: Leaf
    total_variation: Leaf
    emitted: Leaf
    top_token_ids: Leaf
    top: Leaf


def verify_tensors(batch: VerifyBatch, params: SamplingTensors, out: VerifyOutput) -> CallTensors:
    """The tensors of a `verify`."""
    return CallTensors(
        batch.target_logits,
        batch.cu_num_logits,
        batch.draft_logits,
        batch.draft_token_ids,
        batch.positions,
        params.seeds,
        batch.slot_ids,
        *_counted(batch.token_counts),
        *_adjusting(params),
        *_recipe(params.target),
        *_recipe(params.draft),
        params.logprobs_processed,
        out.token_ids,
        out.num_accepted,
        out.status,
        out.total_variation,
        *_logprobs(out.logprobs),
    )


def sample_tensors(batch: SampleBatch, params: SamplingTensors, out: SampleOutput) -> CallTensors:
    """The tensors of a `sample`; the recipe that it uses is the target's here."""
    recipe = params.target if batch.draft_index is None else params.draft
    return CallTensors(
        batch.logits,
        None,
        None,
        None,
        batch.positions,
        params.seeds,
        batch.slot_ids,
        *_counted(batch.token_counts),
        *_adjusting(params),
        *_recipe(recipe),
        *_recipe(recipe),
        params.logprobs_processed,
        out.token_ids,
        None,
        out.status,
        None,
        *_logprobs(out.logprobs),
    )


def _counted(counts: TokenCounts | None) -> tuple[Leaf, Leaf]:
    return (None, None) if counts is None else (counts.prompt_mask, counts.output_counts)


def _adjusting(params: SamplingTensors) -> tuple[Leaf, Leaf, Leaf, Leaf, Leaf]:
    bias, penalties = params.bias, params.penalties
    return (
        None if bias is None else bias.token_ids,
        None if bias is None else bias.values,
        None if penalties is None else penalties.repetition,
        None if penalties is None else penalties.presence,
        None if penalties is None else penalties.frequency,
    )


def _recipe(recipe: RecipeTensors) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return recipe.temperature, recipe.min_p, recipe.top_k, recipe.top_p


def _logprobs(logprobs: Logprobs | None) -> tuple[Leaf, Leaf, Leaf]:
    if logprobs is None:
        return None, None, None
    return logprobs.emitted, logprobs.top_token_ids, logprobs.top


def verify_kind(
    batch: VerifyBatch,
    params: SamplingTensors,
    policy: Policy,
    tensors: CallTensors,
    workspace: Tensor | None,
) -> tuple[object, ...]:
    """All that checks, plan and arguments of a `verify` depend on, addresses aside."""
    logits, draft_ids, draft = batch.target_logits, batch.draft_token_ids, batch.draft_logits
    return (
        policy,
        logits.shape[1],
        logits.stride(0),
        draft_ids.shape,
        draft_ids.stride(0),
        None if draft is None else (draft.shape[2], draft.stride()),
        batch.draft_to_target is None,
        *_kind(params, tensors, workspace),
    )


def sample_kind(
    batch: SampleBatch,
    params: SamplingTensors,
    tensors: CallTensors,
    workspace: Tensor | None,
) -> tuple[object, ...]:
    """The same for a `sample`."""
    return (
        batch.draft_index,
        batch.stream,
        batch.logits.shape,
        batch.logits.stride(0),
        batch.draft_to_target is None,
        batch.target_vocab_size,
        *_kind(params, tensors, workspace),
    )


def _kind(
    params: SamplingTensors, tensors: CallTensors, workspace: Tensor | None
) -> tuple[object, ...]:
    target, draft = params.target, params.draft
    return (
        params.seeds.shape,
        target.any_greedy,
        target.all_greedy,
        target.any_min_p,
        target.any_top_k,
        target.any_top_p,
        draft.any_greedy,
        draft.all_greedy,
        draft.any_min_p,
        draft.any_top_k,
        draft.any_top_p,
        params.num_logprobs,
        None if params.bias is None else params.bias.token_ids.shape,
        None if tensors.prompt_mask is None else tensors.prompt_mask.shape[1],
        None if tensors.top is None else tensors.top.shape,
        None if workspace is None else (workspace.dtype, workspace.shape, workspace.stride()),
        None if workspace is None else workspace.get_device(),
        *[None if tensor is None else tensor.dtype for tensor in tensors],
        # Nobody looks where a later call's addresses lie.
        *[tensor.get_device() for tensor in tensors if tensor is not None],
    )
