"""The Triton sampler: from batches to kernel arguments and back.

It refuses to wait for the device or to look at a value.
"""

import torch
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.fit import check_sample_fits, check_verify_fits
from ...core.output import Logprobs, SampleOutput, Status, VerifyOutput
from ...core.policies import Policy
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
    TargetRows,
)
from .inverse_maps import InverseMaps
from .launch import Arguments, Launcher, launch_all, start
from .plan import Plan, plan_sample, plan_verify
from .workspace import cut


class TritonSampler:
    """A `Sampler` for CUDA tensors.

    Args:
        launch: starts a kernel; something else than `start` only compiles it, or counts launches.
    """

    def __init__(self, launch: Launcher = start) -> None:
        self._launch = launch
        self._inverses = InverseMaps()

    def verify(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        workspace: Tensor | None = None,
        out: VerifyOutput | None = None,
    ) -> VerifyOutput:
        """See `Sampler.verify`.

        Args:
            batch: see `Sampler.verify`.
            params: see `Sampler.verify`.
            policy: see `Sampler.verify`.
            workspace: [at least `verify_workspace_size`] float32; allocated when None.
            out: where to write; allocated when None.
        """
        check_verify_fits(batch, params)
        plan = plan_verify(batch, params, policy)
        if out is None:
            out = _empty_output(batch, params, policy)
        scratch = _workspace(plan, batch.target_logits, workspace)
        arguments = _verify_arguments(plan, batch, params, scratch, out, self._inverses)
        launch_all(plan, arguments, self._launch)
        if out.total_variation is not None and not plan.is_lossy:
            # All requests are greedy: nothing was moved.
            out.total_variation.zero_()
        return out

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        workspace: Tensor | None = None,
        out: SampleOutput | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`; `workspace` and `out` are as in `verify`."""
        check_sample_fits(batch, params)
        recipe = params.target if batch.draft_index is None else params.draft
        plan = plan_sample(batch, params, recipe)
        if out is None:
            device = batch.logits.device
            out = SampleOutput(
                token_ids=torch.empty(batch.num_reqs, dtype=torch.int64, device=device),
                status=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
                logprobs=_empty_logprobs((batch.num_reqs, 1), params, device)
                if batch.draft_index is None
                else None,
            )
        scratch = _workspace(plan, batch.logits, workspace)
        arguments = _sample_arguments(plan, batch, params, recipe, scratch, out, self._inverses)
        launch_all(plan, arguments, self._launch)
        return out

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        """How many float32 a `verify` of such a batch needs."""
        return plan_verify(batch, params, policy).layout.size

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        """How many float32 a `sample` of such a batch needs."""
        recipe = params.target if batch.draft_index is None else params.draft
        return plan_sample(batch, params, recipe).layout.size


def _workspace(plan: Plan, logits: Tensor, workspace: Tensor | None) -> Tensor:
    if workspace is None:
        return plan.layout.allocate(logits.device)
    plan.layout.prepare(workspace)
    return workspace


def _empty_output(batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> VerifyOutput:
    device = batch.target_logits.device
    shape = (batch.num_reqs, batch.max_spec_len + 1)
    return VerifyOutput(
        token_ids=torch.empty(shape, dtype=torch.int64, device=device),
        num_accepted=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        status=torch.empty(batch.num_reqs, dtype=torch.int32, device=device),
        logprobs=_empty_logprobs(shape, params, device),
        total_variation=None
        if policy.lossless or not policy.uses_draft_probs
        else torch.empty(shape, device=device),
    )


def _empty_logprobs(
    shape: tuple[int, int], params: SamplingTensors, device: torch.device
) -> Logprobs | None:
    if params.num_logprobs is None:
        return None
    top_shape = (*shape, params.num_logprobs)
    return Logprobs(
        emitted=torch.empty(shape, device=device),
        top_token_ids=torch.empty(top_shape, dtype=torch.int64, device=device),
        top=torch.empty(top_shape, device=device),
    )


def _logprob_outputs(logprobs: Logprobs | None, params: SamplingTensors) -> LogprobOutputs | None:
    if logprobs is None:
        return None
    return LogprobOutputs(
        params.logprobs_processed, logprobs.emitted, logprobs.top_token_ids, logprobs.top
    )


def _recipe(recipe: RecipeTensors) -> RecipeArguments:
    return RecipeArguments(
        temperature=recipe.temperature,
        min_p=recipe.min_p if recipe.any_min_p else None,
        top_k=recipe.top_k if recipe.any_top_k else None,
        top_p=recipe.top_p if recipe.any_top_p else None,
    )


def _adjustments(params: SamplingTensors, counts: TokenCounts | None) -> Adjustments:
    bias, penalties = params.bias, params.penalties
    if penalties is None:
        counts = None
    return Adjustments(
        bias_ids=None if bias is None else bias.token_ids,
        bias_values=None if bias is None else bias.values,
        bias_width=0 if bias is None else bias.token_ids.shape[1],
        prompt_mask=None if counts is None else counts.prompt_mask,
        output_counts=None if counts is None else counts.output_counts,
        counts_stride=0 if counts is None else counts.prompt_mask.shape[1],
        repetition=None if penalties is None else penalties.repetition,
        presence=None if penalties is None else penalties.presence,
        frequency=None if penalties is None else penalties.frequency,
    )


def _verify_arguments(
    plan: Plan,
    batch: VerifyBatch,
    params: SamplingTensors,
    workspace: Tensor,
    out: VerifyOutput,
    inverses: InverseMaps,
) -> Arguments:
    draft = NO_DRAFT
    if plan.reads_draft:
        assert batch.draft_logits is not None
        draft = DraftRows(
            logits=batch.draft_logits,
            slot_stride=batch.draft_logits.stride(0),
            row_stride=batch.draft_logits.stride(1),
            vocab_size=batch.draft_logits.shape[2],
            inverse_map=inverses.of(batch.draft_to_target, batch.vocab_size),
        )
    return Arguments(
        target=TargetRows(
            logits=batch.target_logits,
            row_stride=batch.target_logits.stride(0),
            vocab_size=batch.vocab_size,
            cu_num_logits=batch.cu_num_logits,
            inverse_map=None,
        ),
        draft=draft,
        requests=Requests(
            draft_token_ids=batch.draft_token_ids,
            draft_stride=batch.draft_token_ids.stride(0),
            positions=batch.positions,
            seeds=params.seeds,
            slot_ids=batch.slot_ids,
        ),
        adjust=_adjustments(params, batch.token_counts),
        target_recipe=_recipe(params.target),
        draft_recipe=_recipe(params.draft),
        scratch=plan.layout.scratch(cut(workspace)),
        raw=plan.layout.raw_scratch(cut(workspace)),
        outputs=Outputs(out.token_ids, out.num_accepted, out.status, out.total_variation),
        stream=int(Stream.TARGET),
        draft_index=0,
        invalid=int(Status.TARGET_LOGITS_INVALID),
        logprobs=_logprob_outputs(out.logprobs, params),
    )


def _sample_arguments(
    plan: Plan,
    batch: SampleBatch,
    params: SamplingTensors,
    recipe: RecipeTensors,
    workspace: Tensor,
    out: SampleOutput,
    inverses: InverseMaps,
) -> Arguments:
    for_target = batch.draft_index is None
    vocab_size = batch.logits.shape[1]
    if batch.draft_to_target is not None and batch.target_vocab_size is not None:
        vocab_size = batch.target_vocab_size
    stream = batch.stream
    invalid = Status.TARGET_LOGITS_INVALID if for_target else Status.DRAFT_LOGITS_INVALID
    return Arguments(
        target=TargetRows(
            logits=batch.logits,
            row_stride=batch.logits.stride(0),
            vocab_size=vocab_size,
            cu_num_logits=None,
            inverse_map=inverses.of(batch.draft_to_target, vocab_size),
        ),
        draft=NO_DRAFT,
        requests=Requests(None, 0, batch.positions, params.seeds, batch.slot_ids),
        adjust=_adjustments(params, batch.token_counts) if for_target else NO_ADJUSTMENTS,
        target_recipe=_recipe(recipe),
        draft_recipe=_recipe(recipe),
        scratch=plan.layout.scratch(cut(workspace)),
        raw=plan.layout.raw_scratch(cut(workspace)),
        outputs=Outputs(out.token_ids, None, out.status, None),
        stream=int(stream),
        draft_index=0 if stream is Stream.TARGET else batch.draft_index or 0,
        invalid=int(invalid),
        logprobs=_logprob_outputs(out.logprobs, params),
    )
