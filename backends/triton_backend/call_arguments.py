"""From batches and parameters to kernel arguments, whatever stands for the tensors.

This module refuses to look at a value.
"""

from typing import Any

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import Status
from ...core.randomness import Stream
from ...core.sampling_tensors import SamplingTensors
from .arguments import (
    NO_ADJUSTMENTS,
    NO_DRAFT,
    Adjustments,
    Arguments,
    DraftRows,
    LogprobOutputs,
    Outputs,
    RecipeArguments,
    Requests,
    TargetRows,
)
from .call_tensors import CallTensors
from .plan import Plan, sampled_vocab_size
from .workspace import Place


def verify_arguments(
    plan: Plan,
    batch: VerifyBatch,
    params: SamplingTensors,
    tensors: CallTensors,
    inverse_map: Any,
    place: Place,
) -> Arguments:
    """The arguments of `verify`; parts of the workspace are what `place` makes of them."""
    draft = NO_DRAFT
    if plan.reads_draft:
        assert batch.draft_logits is not None
        draft = DraftRows(
            logits=tensors.draft_logits,
            slot_stride=batch.draft_logits.stride(0),
            row_stride=batch.draft_logits.stride(1),
            vocab_size=batch.draft_logits.shape[2],
            inverse_map=inverse_map,
        )
    return Arguments(
        target=TargetRows(
            logits=tensors.logits,
            row_stride=batch.target_logits.stride(0),
            vocab_size=batch.vocab_size,
            cu_num_logits=tensors.cu_num_logits,
            inverse_map=None,
        ),
        draft=draft,
        requests=Requests(
            draft_token_ids=tensors.draft_token_ids,
            draft_stride=batch.draft_token_ids.stride(0),
            positions=tensors.positions,
            seeds=tensors.seeds,
            slot_ids=tensors.slot_ids,
        ),
        adjust=_adjustments(params, tensors),
        target_recipe=_target_recipe(tensors),
        draft_recipe=_draft_recipe(tensors),
        scratch=plan.layout.scratch(place),
        raw=plan.layout.raw_scratch(place),
        outputs=Outputs(
            tensors.token_ids, tensors.num_accepted, tensors.status, tensors.total_variation
        ),
        stream=int(Stream.TARGET),
        draft_index=0,
        invalid=int(Status.TARGET_LOGITS_INVALID),
        logprobs=_logprob_outputs(tensors),
    )


def sample_arguments(
    plan: Plan,
    batch: SampleBatch,
    params: SamplingTensors,
    tensors: CallTensors,
    inverse_map: Any,
    place: Place,
) -> Arguments:
    """The arguments of `sample`, as in `verify_arguments`."""
    for_target = batch.draft_index is None
    recipe = _target_recipe(tensors) if for_target else _draft_recipe(tensors)
    stream = batch.stream
    invalid = Status.TARGET_LOGITS_INVALID if for_target else Status.DRAFT_LOGITS_INVALID
    return Arguments(
        target=TargetRows(
            logits=tensors.logits,
            row_stride=batch.logits.stride(0),
            vocab_size=sampled_vocab_size(batch),
            cu_num_logits=None,
            inverse_map=inverse_map,
        ),
        draft=NO_DRAFT,
        requests=Requests(None, 0, tensors.positions, tensors.seeds, tensors.slot_ids),
        adjust=_adjustments(params, tensors) if for_target else NO_ADJUSTMENTS,
        target_recipe=recipe,
        draft_recipe=recipe,
        scratch=plan.layout.scratch(place),
        raw=plan.layout.raw_scratch(place),
        outputs=Outputs(tensors.token_ids, None, tensors.status, None),
        stream=int(stream),
        draft_index=0 if stream is Stream.TARGET else batch.draft_index or 0,
        invalid=int(invalid),
        logprobs=_logprob_outputs(tensors),
    )


def _target_recipe(tensors: CallTensors) -> RecipeArguments:
    return RecipeArguments(
        temperature=tensors.temperature,
        min_p=tensors.min_p,
        top_k=tensors.top_k,
        top_p=tensors.top_p,
    )


def _draft_recipe(tensors: CallTensors) -> RecipeArguments:
    return RecipeArguments(
        temperature=tensors.draft_temperature,
        min_p=tensors.draft_min_p,
        top_k=tensors.draft_top_k,
        top_p=tensors.draft_top_p,
    )


def _adjustments(params: SamplingTensors, tensors: CallTensors) -> Adjustments:
    bias = params.bias
    mask = None if params.penalties is None else tensors.prompt_mask
    return Adjustments(
        bias_ids=tensors.bias_ids,
        bias_values=tensors.bias_values,
        bias_width=0 if bias is None else bias.token_ids.shape[1],
        prompt_mask=mask,
        output_counts=None if mask is None else tensors.output_counts,
        counts_stride=0 if mask is None else mask.shape[1],
        repetition=tensors.repetition,
        presence=tensors.presence,
        frequency=tensors.frequency,
    )


def _logprob_outputs(tensors: CallTensors) -> LogprobOutputs | None:
    if tensors.top is None:
        return None
    return LogprobOutputs(tensors.processed, tensors.emitted, tensors.top_token_ids, tensors.top)
