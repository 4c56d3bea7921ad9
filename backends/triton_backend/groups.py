"""From batches, parameters and outputs to the groups that kernels are given.

What stands for a tensor is the caller's choice: the tensor, its address, or what is fixed about it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import WORKSPACE_ALIGNMENT
from ...core.output import SampleOutput, VerifyOutput
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from .arguments import (
    Adjustments,
    Call,
    Counts,
    DraftRows,
    LogprobOutputs,
    Masks,
    Outputs,
    RecipeArguments,
    Requests,
    Scratch,
    TargetRows,
)
from .plan import Plan

Leaf = Callable[[Tensor | None], Any]

NO_MASKS = Masks(None, 0, None)
NO_DRAFT = DraftRows(None, 0, 0, 0, None)
NO_COUNTS = Counts(None, None, 0)
NO_ADJUSTMENTS = Adjustments(None, None, 0, None, None, None)


class BatchGroups(NamedTuple):
    """What a batch contributes to a `Call`."""

    target: TargetRows
    masks: Masks
    draft: DraftRows
    requests: Requests
    counts: Counts


class ParamsGroups(NamedTuple):
    """What parameters contribute."""

    seeds: Any
    adjust: Adjustments
    target_recipe: RecipeArguments
    draft_recipe: RecipeArguments
    processed: Any


class OutputGroups(NamedTuple):
    """What an output contributes."""

    outputs: Outputs
    emitted: Any
    top_token_ids: Any
    top: Any


def address_of(tensor: Tensor | None) -> Any:
    """Where a tensor lies."""
    return None if tensor is None else tensor.data_ptr()


def tensor_itself(tensor: Tensor | None) -> Any:
    """The tensor."""
    return tensor


def kind_of(tensor: Tensor | None) -> Any:
    """All that kernels are compiled for in a tensor."""
    if tensor is None:
        return None
    return tensor.dtype, tensor.get_device(), tensor.data_ptr() % WORKSPACE_ALIGNMENT


def batch_groups(batch: VerifyBatch | SampleBatch, leaf: Leaf) -> BatchGroups:
    """Of a batch; its map of ids is inverted elsewhere."""
    counts = NO_COUNTS
    if batch.token_counts is not None:
        mask, output = batch.token_counts.prompt_mask, batch.token_counts.output_counts
        counts = Counts(leaf(mask), leaf(output), mask.shape[1])
    masks, words = NO_MASKS, batch.allowed_tokens
    if words is not None:
        masks = Masks(leaf(words), words.stride(0), leaf(batch.allowed_rows))
    slots, positions = leaf(batch.slot_ids), leaf(batch.positions)
    if isinstance(batch, SampleBatch):
        logits = batch.logits
        rows = TargetRows(leaf(logits), logits.stride(0), batch.vocab_size, None, None)
        return BatchGroups(rows, masks, NO_DRAFT, Requests(None, 0, positions, slots), counts)
    logits, draft_logits, draft_ids = batch.target_logits, batch.draft_logits, batch.draft_token_ids
    starts = leaf(batch.cu_num_logits)
    rows = TargetRows(leaf(logits), logits.stride(0), batch.vocab_size, starts, None)
    draft = NO_DRAFT
    if draft_logits is not None:
        slot_stride, row_stride, _ = draft_logits.stride()
        width = draft_logits.shape[2]
        draft = DraftRows(leaf(draft_logits), slot_stride, row_stride, width, None)
    requests = Requests(leaf(draft_ids), draft_ids.stride(0), positions, slots)
    return BatchGroups(rows, masks, draft, requests, counts)


def params_groups(params: SamplingTensors, leaf: Leaf) -> ParamsGroups:
    """Of parameters."""
    bias, penalties = params.bias, params.penalties
    return ParamsGroups(
        leaf(params.seeds),
        Adjustments(
            bias_ids=leaf(None if bias is None else bias.token_ids),
            bias_values=leaf(None if bias is None else bias.values),
            bias_width=0 if bias is None else bias.token_ids.shape[1],
            repetition=leaf(None if penalties is None else penalties.repetition),
            presence=leaf(None if penalties is None else penalties.presence),
            frequency=leaf(None if penalties is None else penalties.frequency),
        ),
        _recipe(params.target, params.slot_ids, leaf),
        _recipe(params.draft, params.slot_ids, leaf),
        leaf(None if params.num_logprobs is None else params.logprobs_processed),
    )


def output_groups(out: VerifyOutput | SampleOutput, leaf: Leaf) -> OutputGroups:
    """Of an output."""
    num_accepted = total_variation = None
    if isinstance(out, VerifyOutput):
        num_accepted, total_variation = out.num_accepted, out.total_variation
    logprobs = out.logprobs
    return OutputGroups(
        Outputs(leaf(out.token_ids), leaf(num_accepted), leaf(out.status), leaf(total_variation)),
        leaf(None if logprobs is None else logprobs.emitted),
        leaf(None if logprobs is None else logprobs.top_token_ids),
        leaf(None if logprobs is None else logprobs.top),
    )


def make_call(
    plan: Plan,
    batch: BatchGroups,
    params: ParamsGroups,
    out: OutputGroups,
    scratch: Scratch,
    inverse_map: Any,
) -> Call:
    """All that kernels are given."""
    target, draft = batch.target, batch.draft if plan.reads_draft else NO_DRAFT
    for_draft = plan.draws_draft
    if inverse_map is not None:
        if plan.reads_draft:
            draft = draft._replace(inverse_map=inverse_map)
        else:
            target = target._replace(inverse_map=inverse_map)
    return Call(
        target,
        batch.masks,
        draft,
        batch.requests,
        batch.counts if params.adjust.repetition is not None else NO_COUNTS,
        params.seeds,
        NO_ADJUSTMENTS if for_draft else params.adjust,
        params.draft_recipe if for_draft else params.target_recipe,
        params.draft_recipe,
        plan.leniency,
        scratch,
        out.outputs,
        LogprobOutputs(params.processed, out.emitted, out.top_token_ids, out.top),
        *plan.noise,
        plan.constants,
    )


def _recipe(recipe: RecipeTensors, slot_ids: Tensor | None, leaf: Leaf) -> RecipeArguments:
    return RecipeArguments(
        entries=leaf(slot_ids),
        temperature=leaf(recipe.temperature),
        min_p=leaf(recipe.min_p if recipe.any_min_p else None),
        top_k=leaf(recipe.top_k if recipe.any_top_k else None),
        top_p=leaf(recipe.top_p if recipe.any_top_p else None),
    )
