"""Turns batches, parameters and outputs into the groups of a `Call`.

Each yields consecutive fields of a `Call`, and its part of the call's kind: everything that
Triton's specialisation, checks and plan depend on. Batches, parameters and outputs cannot change,
so this is computed once for each.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from attrs import asdict, frozen
from torch import Tensor

from ...core import SampleBatch, SampleOutput, VerifyBatch, VerifyOutput
from ...core.call_memory import WORKSPACE_ALIGNMENT
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from .arguments import DraftRows, Entries, Masks, Outputs, RecipeArguments, Requests, TargetRows
from .plan import Plan

Groups = tuple[Any, ...]

NO_DRAFT = DraftRows(None, 0, 0, 0)


@frozen(cache_hash=True)
class Kind:
    """All that checks, plan and kernels depend on in a part of a call, except addresses."""

    facts: tuple[object, ...]


class Part(NamedTuple):
    """A batch, parameters or an output: its kind, and its groups by tensor and by address."""

    kind: Kind
    groups: Groups
    addresses: Groups

    @classmethod
    def of(cls, *groups: Groups, facts: tuple[object, ...]) -> "Part":
        """Make a part of groups, and of facts that the groups do not tell."""
        kinds = [
            kind_of(one) if isinstance(one, Tensor) else one for group in groups for one in group
        ]
        # Triton takes plain tuples apart three times as fast as named ones.
        addresses = [
            tuple([one.data_ptr() if isinstance(one, Tensor) else one for one in group])
            for group in groups
        ]
        return cls(Kind((*facts, *kinds)), groups, tuple(addresses))


def kind_of(tensor: Tensor) -> tuple[object, ...]:
    """All properties of a tensor that kernels are compiled for."""
    return tensor.dtype, tensor.get_device(), tensor.data_ptr() % WORKSPACE_ALIGNMENT


def batch_part(batch: VerifyBatch | SampleBatch) -> Part:
    """The part of a batch; its map of ids is inverted elsewhere."""
    drafting: tuple[Tensor | None, ...] = (None, None, None)
    own: tuple[object, ...]
    if isinstance(batch, SampleBatch):
        logits, own = batch.logits, (batch.draft_index, batch.draft_stream)
    else:
        logits, own = batch.target_logits, (batch.max_spec_len,)
        drafting = batch.cu_num_logits, batch.draft_token_ids, batch.draft_logits
    starts, drafts, draft_logits = drafting
    target = TargetRows(logits, logits.stride(0), batch.vocab_size, *_strided(starts))
    draft = NO_DRAFT
    if draft_logits is not None:
        slot_stride, row_stride, _ = draft_logits.stride()
        draft = DraftRows(draft_logits, slot_stride, row_stride, draft_logits.shape[2])
    masks = Masks(*_strided(batch.allowed_tokens), *_strided(batch.allowed_rows))
    counts: tuple[Any, ...] = (None, None, 0)
    if batch.token_counts is not None:
        mask = batch.token_counts.prompt_mask
        counts = mask, batch.token_counts.output_counts, mask.shape[1]
    positions, slots = _strided(batch.positions), _strided(batch.slot_ids)
    requests = Requests(*_strided(drafts, 2), *positions, *slots, *counts)
    # Rows after those of the requests do not matter.
    facts = batch.num_reqs, batch.draft_to_target is None, *own
    return Part.of(target, draft, masks, requests, facts=facts)


def params_part(params: SamplingTensors) -> Part:
    """The part of parameters."""
    entries, bias = Entries(params.slot_ids, params.seeds), params.bias
    if params.num_logprobs is not None:
        entries = entries._replace(processed=params.logprobs_processed)
    if bias is not None:
        ids = bias.token_ids
        entries = entries._replace(bias_ids=ids, bias_values=bias.values, bias_width=ids.shape[1])
    if params.penalties is not None:
        entries = entries._replace(**asdict(params.penalties, recurse=False))
    greedy = params.target.all_greedy, params.draft.all_greedy
    facts = params.num_reqs, *greedy, params.num_logprobs
    return Part.of(entries, _recipe(params.target), _recipe(params.draft), facts=facts)


def drafting_part(params: SamplingTensors) -> Part:
    """The part of a draft draw's parameters: the draft's recipe takes the target's place."""
    recipe = _recipe(params.draft)
    entries = Entries(params.slot_ids, params.seeds)
    return Part.of(entries, recipe, recipe, facts=(params.num_reqs, params.draft.all_greedy))


def output_part(out: VerifyOutput | SampleOutput) -> Part:
    """The part of an output."""
    outputs = Outputs(
        *(getattr(out, name, getattr(out.logprobs, name, None)) for name in Outputs._fields)
    )
    tensors = [tensor for tensor in outputs if tensor is not None]
    return Part.of(outputs, facts=tuple([(one.shape, one.stride()) for one in tensors]))


def make_call(
    plan: Plan, groups: Iterable[Groups], workspace: Tensor | int, inverse_map: Tensor | None
) -> Groups:
    """Make a `Call` from the groups of a batch, parameters and an output.

    If the workspace is an address, all groups are plain tuples of addresses: Triton unpacks plain
    tuples three times as fast as named ones.
    """
    (target, draft, *others), of_params, of_out = groups
    if not plan.reads_draft:
        draft = NO_DRAFT
    if inverse_map is not None:
        inverse = inverse_map.data_ptr() if isinstance(workspace, int) else inverse_map
        if plan.reads_draft:
            draft = (*draft[:-1], inverse)
        else:
            target = (*target[:-1], inverse)
    scratch = plan.layout.scratch(workspace)
    return target, draft, *others, *of_params, *of_out, scratch, *plan.fixed


def _strided(tensor: Tensor | None, num_strides: int = 1) -> tuple[Any, ...]:
    strides = (0,) * num_strides if tensor is None else tensor.stride()[:num_strides]
    return tensor, *strides


def _recipe(recipe: RecipeTensors) -> RecipeArguments:
    return RecipeArguments(
        temperature=recipe.temperature,
        min_p=recipe.min_p if recipe.any_min_p else None,
        top_k=recipe.top_k if recipe.any_top_k else None,
        top_p=recipe.top_p if recipe.any_top_p else None,
    )
