"""The reference sampler: plain PyTorch in float64, the oracle all other backends are held to.

It loops over requests, waits for the device and needs no workspace.
"""

import torch
from torch import Tensor

from ...core.batch import PADDING_TOKEN_ID, SampleBatch, VerifyBatch
from ...core.call_memory import (
    check_sample_output,
    check_verify_output,
    check_workspace,
    empty_sample_output,
    empty_verify_output,
)
from ...core.fit import check_sample_fits, check_verify_fits
from ...core.output import Logprobs, SampleOutput, Status, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .draw import draw, draw_draft
from .logprobs import clear_logprobs, row_logprobs, write_logprobs
from .recipe import SeenTokens, adjust_logits, is_usable, log_probs
from .request import in_target_ids
from .verify import Outcome, verify_request


class ReferenceSampler:
    """A `Sampler` for CPU and CUDA tensors and every policy, also ones it has never seen."""

    def verify(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        out: VerifyOutput | None = None,
        workspace: Tensor | None = None,
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        check_verify_fits(batch, params)
        if workspace is not None:
            check_workspace(workspace, 0, batch.target_logits.device)
        if out is None:
            out = empty_verify_output(batch, params, policy)
        else:
            check_verify_output(out, batch, params, policy)
        outcomes = [verify_request(batch, params, policy, r) for r in range(batch.num_reqs)]
        _write_tokens(out, outcomes)
        if out.total_variation is not None:
            _write_total_variation(out.total_variation, outcomes)
        if out.logprobs is not None:
            _write_verify_logprobs(out.logprobs, params, outcomes)
        return out

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        out: SampleOutput | None = None,
        workspace: Tensor | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`."""
        check_sample_fits(batch, params)
        if workspace is not None:
            check_workspace(workspace, 0, batch.logits.device)
        if out is None:
            out = empty_sample_output(batch, params)
        else:
            check_sample_output(out, batch, params)
        requests = torch.arange(batch.num_reqs, device=batch.logits.device)
        logits = batch.logits.to(torch.float64)
        invalid = Status.DRAFT_LOGITS_INVALID
        if batch.draft_index is None:
            logits = adjust_logits(batch.logits, params, requests, _seen(batch, params, requests))
            invalid = Status.TARGET_LOGITS_INVALID
        usable = is_usable(logits)
        drawn = _draw_rows(batch, params, requests, logits)
        out.token_ids.copy_(torch.where(usable, drawn, PADDING_TOKEN_ID))
        out.status.copy_(torch.where(usable, int(Status.OK), int(invalid)))
        if out.logprobs is not None:
            rows = requests[usable]
            clear_logprobs(out.logprobs)
            write_logprobs(
                out.logprobs,
                (rows, torch.zeros_like(rows)),
                row_logprobs(batch.logits[usable], logits[usable], params, rows),
                out.token_ids[usable],
            )
        return out

    def verify_workspace_size(
        self,
        batch: VerifyBatch,  # noqa: ARG002, the port's signature
        params: SamplingTensors,  # noqa: ARG002
        policy: Policy,  # noqa: ARG002
    ) -> int:
        """None is needed."""
        return 0

    def sample_workspace_size(
        self,
        batch: SampleBatch,  # noqa: ARG002, the port's signature
        params: SamplingTensors,  # noqa: ARG002
    ) -> int:
        """None is needed."""
        return 0


def _seen(batch: SampleBatch, params: SamplingTensors, requests: Tensor) -> SeenTokens | None:
    if params.penalties is None or batch.token_counts is None:
        return None
    slots = requests if batch.slot_ids is None else batch.slot_ids.long()
    return SeenTokens.before_rows(batch.token_counts, slots)


def _draw_rows(
    batch: SampleBatch, params: SamplingTensors, requests: Tensor, logits: Tensor
) -> Tensor:
    recipe = params.target if batch.draft_index is None else params.draft
    law = log_probs(logits, recipe, requests)
    if batch.draft_to_target is not None:
        assert batch.target_vocab_size is not None
        law = in_target_ids(law, batch.target_vocab_size, batch.draft_to_target)
    if recipe.all_greedy:
        return law.argmax(dim=-1)
    if batch.draft_index is not None:
        return draw_draft(law, batch, params.seeds)
    positions = batch.positions.long()
    return draw(law, params.seeds, positions, torch.zeros_like(positions), batch.stream)


def _write_tokens(out: VerifyOutput, outcomes: list[Outcome]) -> None:
    out.token_ids.fill_(PADDING_TOKEN_ID)
    for row, outcome in zip(out.token_ids, outcomes, strict=True):
        row[: len(outcome.token_ids)] = outcome.token_ids
    out.num_accepted.copy_(torch.tensor([outcome.num_accepted for outcome in outcomes]))
    out.status.copy_(torch.tensor([int(outcome.status) for outcome in outcomes]))


def _write_total_variation(into: Tensor, outcomes: list[Outcome]) -> None:
    into.zero_()
    for row, outcome in zip(into, outcomes, strict=True):
        if outcome.total_variation is not None:
            row[: len(outcome.total_variation)] = outcome.total_variation


def _write_verify_logprobs(
    into: Logprobs, params: SamplingTensors, outcomes: list[Outcome]
) -> None:
    clear_logprobs(into)
    for outcome in outcomes:
        rows = outcome.rows
        places = torch.arange(len(outcome.token_ids), device=into.emitted.device)
        requests = torch.full_like(places, rows.request)
        used = (rows.raw_logits[: len(places)], rows.logits[: len(places)])
        write_logprobs(
            into,
            (requests, places),
            row_logprobs(*used, params, requests),
            outcome.token_ids,
        )
