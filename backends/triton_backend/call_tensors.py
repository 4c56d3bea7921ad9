"""What calls are made of, and all about it that decides which kernels they take.

Batches, parameters and outputs cannot change, so each is looked at once. This module refuses to
check anything: it is on the way of every eager call.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from attrs import frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import Logprobs, SampleOutput, VerifyOutput
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
    slot_ids: Leaf
    prompt_mask: Leaf
    output_counts: Leaf
    seeds: Leaf
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


@frozen(cache_hash=True)
class Kind:
    """All that checks, plan and arguments of a call depend on in a part of it, addresses aside."""

    facts: tuple[object, ...]


OWN = Kind(("own",))


@frozen(eq=False)
class Part:
    """A batch, parameters or an output.

    Attributes:
        kind: two parts of one kind make no difference to a call but by their addresses.
        leaves: its share of `CallTensors`.
        tensors: those that there are.
    """

    kind: Kind
    leaves: Sequence[Leaf]
    tensors: Sequence[Tensor]

    @classmethod
    def of(cls, leaves: Sequence[Leaf], *facts: object) -> "Part":
        """A part that these facts, dtypes and devices tell apart from others."""
        tensors = [leaf for leaf in leaves if leaf is not None]
        dtypes = [None if leaf is None else leaf.dtype for leaf in leaves]
        # Nobody looks where a later call's addresses lie.
        devices = [tensor.get_device() for tensor in tensors]
        return cls(Kind((*facts, *dtypes, *devices)), leaves, tensors)


def look_at_verify_batch(batch: VerifyBatch) -> Part:
    """The batch of a `verify`; rows behind those of its requests do not matter."""
    logits, draft_ids, draft = batch.target_logits, batch.draft_token_ids, batch.draft_logits
    counted = _counted(batch.token_counts)
    rows = logits, batch.cu_num_logits, draft, draft_ids, batch.positions, batch.slot_ids
    return Part.of(
        (*rows, *counted),
        logits.shape[1],
        logits.stride(0),
        draft_ids.shape,
        draft_ids.stride(0),
        None if draft is None else (draft.shape[2], draft.stride()),
        batch.draft_to_target is None,
        None if counted[0] is None else counted[0].shape[1],
    )


def look_at_sample_batch(batch: SampleBatch) -> Part:
    """The batch of a `sample`."""
    counted = _counted(batch.token_counts)
    return Part.of(
        (batch.logits, None, None, None, batch.positions, batch.slot_ids, *counted),
        batch.draft_index,
        batch.stream,
        batch.logits.shape,
        batch.logits.stride(0),
        batch.draft_to_target is None,
        batch.target_vocab_size,
        None if counted[0] is None else counted[0].shape[1],
    )


def look_at_params(params: SamplingTensors) -> Part:
    """The parameters of any call."""
    target, draft, bias, penalties = params.target, params.draft, params.bias, params.penalties
    return Part.of(
        (
            params.seeds,
            None if bias is None else bias.token_ids,
            None if bias is None else bias.values,
            None if penalties is None else penalties.repetition,
            None if penalties is None else penalties.presence,
            None if penalties is None else penalties.frequency,
            *_recipe(target),
            *_recipe(draft),
            None if params.num_logprobs is None else params.logprobs_processed,
        ),
        params.seeds.shape,
        target.any_greedy,
        target.all_greedy,
        draft.any_greedy,
        draft.all_greedy,
        params.num_logprobs,
        None if bias is None else bias.token_ids.shape,
    )


def look_at_output(out: VerifyOutput | SampleOutput) -> Part:
    """The output of any call, brought by the caller."""
    leaves = _output_leaves(out)
    forms = [None if leaf is None else (leaf.shape, leaf.stride()) for leaf in leaves]
    return Part.of(leaves, *forms)


def own_output(out: VerifyOutput | SampleOutput) -> Part:
    """The output of any call, made for it: the other parts say what it is like."""
    leaves = _output_leaves(out)
    return Part(OWN, leaves, [leaf for leaf in leaves if leaf is not None])


def _output_leaves(out: VerifyOutput | SampleOutput) -> Sequence[Leaf]:
    logprobs = _logprobs(out.logprobs)
    if isinstance(out, VerifyOutput):
        return out.token_ids, out.num_accepted, out.status, out.total_variation, *logprobs
    return out.token_ids, None, out.status, None, *logprobs


def _counted(counts: TokenCounts | None) -> tuple[Leaf, Leaf]:
    return (None, None) if counts is None else (counts.prompt_mask, counts.output_counts)


def _recipe(recipe: RecipeTensors) -> tuple[Leaf, Leaf, Leaf, Leaf]:
    return (
        recipe.temperature,
        recipe.min_p if recipe.any_min_p else None,
        recipe.top_k if recipe.any_top_k else None,
        recipe.top_p if recipe.any_top_p else None,
    )


def _logprobs(logprobs: Logprobs | None) -> tuple[Leaf, Leaf, Leaf]:
    if logprobs is None:
        return None, None, None
    return logprobs.emitted, logprobs.top_token_ids, logprobs.top
