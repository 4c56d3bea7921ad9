"""From batches and parameters to kernel arguments; tensors stay tensors or become addresses.

This module refuses to look at values.
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import Logprobs, SampleOutput, VerifyOutput
from ...core.randomness import Stream
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from ...core.token_counts import TokenCounts
from .arguments import (
    NO_ADJUSTMENTS,
    NO_DRAFT,
    Adjustments,
    DraftRows,
    LogprobOutputs,
    Outputs,
    RecipeArguments,
    Requests,
    Scratch,
    TargetRows,
    Variant,
)
from .plan import Plan
from .workspace import cut

NUM_BLOCKS = Scratch._fields.index("num_blocks")

Leaf = Callable[[Tensor | None], Any]


@frozen
class Arguments:
    """Everything that kernels are given."""

    target: TargetRows
    draft: DraftRows
    requests: Requests
    adjust: Adjustments
    target_recipe: RecipeArguments
    draft_recipe: RecipeArguments
    scratch: Scratch
    outputs: Outputs
    stream: int
    draft_index: int
    logprobs: LogprobOutputs | None
    num_logprobs: int | None
    raw: Scratch | None
    variant: Variant


class Tensors:
    """Arguments as Triton takes them when it compiles."""

    def __call__(self, tensor: Tensor | None) -> Any:
        """The tensor itself."""
        return tensor

    def scratch(self, plan: Plan, workspace: Tensor) -> tuple[Scratch, Scratch | None]:
        """The parts of the workspace, and those for raw logits."""
        place = cut(workspace)
        raw = plan.layout.raw_scratch(place) if plan.layout.num_raw_rows else None
        return plan.layout.scratch(place), raw


class Addresses:
    """Arguments as a compiled kernel takes them.

    Attributes:
        bits: of all addresses; a kernel is compiled for their alignment.
    """

    def __init__(self) -> None:
        self.bits = 0

    def __call__(self, tensor: Tensor | None) -> Any:
        """Where the tensor lies."""
        if tensor is None:
            return None
        address = tensor.data_ptr()
        self.bits |= address
        return address

    @property
    def are_aligned(self) -> bool:
        """Whether everything lies at multiples of 16 bytes."""
        return self.bits % 16 == 0

    def scratch(self, plan: Plan, workspace: Tensor) -> tuple[Scratch, Scratch | None]:
        """The parts of the workspace, and those for raw logits."""
        base = self(workspace)
        offsets, raw_offsets = plan.scratch_offsets
        raw = None if raw_offsets is None else _shifted(raw_offsets, base)
        return _shifted(offsets, base), raw


def _shifted(offsets: Scratch, base: int) -> Scratch:
    places = [None if offset is None else base + offset for offset in offsets]
    places[NUM_BLOCKS] = offsets.num_blocks
    return Scratch(*places)


def verify_arguments(
    plan: Plan,
    variant: Variant,
    batch: VerifyBatch,
    params: SamplingTensors,
    workspace: Tensor,
    out: VerifyOutput,
    inverse_map: Tensor | None,
    leaf: Tensors | Addresses,
) -> Arguments:
    """The arguments of `verify`."""
    draft = NO_DRAFT
    if plan.reads_draft:
        assert batch.draft_logits is not None
        slot_stride, row_stride, _ = batch.draft_logits.stride()
        draft = DraftRows(
            logits=leaf(batch.draft_logits),
            slot_stride=slot_stride,
            row_stride=row_stride,
            vocab_size=batch.draft_logits.shape[2],
            inverse_map=leaf(inverse_map),
        )
    scratch, raw = leaf.scratch(plan, workspace)
    return Arguments(
        target=TargetRows(
            logits=leaf(batch.target_logits),
            row_stride=batch.target_logits.stride(0),
            vocab_size=batch.target_logits.shape[1],
            cu_num_logits=leaf(batch.cu_num_logits),
            inverse_map=None,
        ),
        draft=draft,
        requests=Requests(
            draft_token_ids=leaf(batch.draft_token_ids),
            draft_stride=batch.draft_token_ids.stride(0),
            positions=leaf(batch.positions),
            seeds=leaf(params.seeds),
            slot_ids=leaf(batch.slot_ids),
        ),
        adjust=_adjustments(params, batch.token_counts, leaf),
        target_recipe=_recipe(params.target, leaf),
        draft_recipe=_recipe(params.draft, leaf),
        scratch=scratch,
        raw=raw,
        outputs=Outputs(
            leaf(out.token_ids), leaf(out.num_accepted), leaf(out.status), leaf(out.total_variation)
        ),
        stream=int(Stream.TARGET),
        draft_index=0,
        logprobs=_logprob_outputs(out.logprobs, params, leaf),
        num_logprobs=params.num_logprobs,
        variant=variant,
    )


def sample_arguments(
    plan: Plan,
    variant: Variant,
    batch: SampleBatch,
    params: SamplingTensors,
    workspace: Tensor,
    out: SampleOutput,
    inverse_map: Tensor | None,
    leaf: Tensors | Addresses,
) -> Arguments:
    """The arguments of `sample`."""
    for_target = batch.draft_index is None
    recipe = _recipe(params.target if for_target else params.draft, leaf)
    stream = batch.stream
    scratch, raw = leaf.scratch(plan, workspace)
    return Arguments(
        target=TargetRows(
            logits=leaf(batch.logits),
            row_stride=batch.logits.stride(0),
            vocab_size=sampled_vocab_size(batch),
            cu_num_logits=None,
            inverse_map=leaf(inverse_map),
        ),
        draft=NO_DRAFT,
        requests=Requests(None, 0, leaf(batch.positions), leaf(params.seeds), leaf(batch.slot_ids)),
        adjust=_adjustments(params, batch.token_counts, leaf) if for_target else NO_ADJUSTMENTS,
        target_recipe=recipe,
        draft_recipe=recipe,
        scratch=scratch,
        raw=raw,
        outputs=Outputs(leaf(out.token_ids), None, leaf(out.status), None),
        stream=int(stream),
        draft_index=0 if stream is Stream.TARGET else batch.draft_index or 0,
        logprobs=_logprob_outputs(out.logprobs, params, leaf),
        num_logprobs=params.num_logprobs,
        variant=variant,
    )


def sampled_vocab_size(batch: SampleBatch) -> int:
    """How many ids the drawn tokens belong to."""
    if batch.draft_to_target is not None and batch.target_vocab_size is not None:
        return batch.target_vocab_size
    return batch.logits.shape[1]


def _recipe(recipe: RecipeTensors, leaf: Leaf) -> RecipeArguments:
    return RecipeArguments(
        temperature=leaf(recipe.temperature),
        min_p=leaf(recipe.min_p) if recipe.any_min_p else None,
        top_k=leaf(recipe.top_k) if recipe.any_top_k else None,
        top_p=leaf(recipe.top_p) if recipe.any_top_p else None,
    )


def _adjustments(params: SamplingTensors, counts: TokenCounts | None, leaf: Leaf) -> Adjustments:
    bias, penalties = params.bias, params.penalties
    adjust = NO_ADJUSTMENTS
    if bias is not None:
        adjust = adjust._replace(
            bias_ids=leaf(bias.token_ids),
            bias_values=leaf(bias.values),
            bias_width=bias.token_ids.shape[1],
        )
    if penalties is not None:
        assert counts is not None
        adjust = adjust._replace(
            prompt_mask=leaf(counts.prompt_mask),
            output_counts=leaf(counts.output_counts),
            counts_stride=counts.prompt_mask.shape[1],
            repetition=leaf(penalties.repetition),
            presence=leaf(penalties.presence),
            frequency=leaf(penalties.frequency),
        )
    return adjust


def _logprob_outputs(
    logprobs: Logprobs | None, params: SamplingTensors, leaf: Leaf
) -> LogprobOutputs | None:
    if logprobs is None:
        return None
    return LogprobOutputs(
        leaf(params.logprobs_processed),
        leaf(logprobs.emitted),
        leaf(logprobs.top_token_ids),
        leaf(logprobs.top),
    )
