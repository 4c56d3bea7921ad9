"""Bugs planted in how a batch is read and an output written, and the list of all bugs."""

import torch
from attrs import evolve

from acceptor.core import SamplingTensors, VerifyBatch, VerifyOutput
from kit import bugs_in_draws, bugs_in_laws, bugs_in_masks
from kit.bugs import Batch, Bug, bugs_of


@Bug.misreads("noise keyed by place in the batch")
def _seeds_by_place(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, seeds=params.seeds + torch.arange(params.num_reqs))


@Bug.misreads("positions off by one")
def _next_position(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return evolve(batch, positions=batch.positions + 1), params


@Bug.misreads("draft rows off by one")
def _next_draft_row(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.draft_logits is not None:
        return evolve(batch, draft_logits=batch.draft_logits.roll(1, dims=1)), params
    return batch, params


@Bug.misreads("slots ignored")
def _ignore_slots(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.slot_ids is not None:
        return evolve(batch, slot_ids=torch.arange(batch.num_reqs)), params
    return batch, params


@Bug.misreads("one temperature for all", features=("temperature",))
def _one_temperature(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    shared = params.target.temperature[:1].repeat(params.num_reqs)
    return batch, evolve(params, target=evolve(params.target, temperature=shared))


@Bug.misreads("draft logits scaled in place")
def _scale_in_place(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    if isinstance(batch, VerifyBatch) and batch.draft_logits is not None:
        batch.draft_logits[..., -1:] *= 2
    return batch, params


@Bug.misreads("seeds lose their sign bit")
def _signed_seeds(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, seeds=params.seeds & (2**63 - 1))


@Bug.spoils("padding not written")
def _leave_unwritten(_: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    token_ids = torch.empty_like(output.token_ids)
    written = output.token_ids >= 0
    token_ids[written] = output.token_ids[written]
    return evolve(output, token_ids=token_ids)


@Bug.spoils("one NaN stops everybody")
def _all_stop(batch: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    if batch.target_logits.isnan().any():
        return evolve(output, status=output.status | 1)
    return output


@Bug.misreads("processed logprobs are raw", features=("logprobs", "temperature"))
def _raw_only(batch: Batch, params: SamplingTensors) -> tuple[Batch, SamplingTensors]:
    return batch, evolve(params, logprobs_processed=torch.zeros_like(params.logprobs_processed))


@Bug.spoils("no variation reported", policy="typical")
def _no_variation(_: VerifyBatch, output: VerifyOutput) -> VerifyOutput:
    caused = output.total_variation
    return evolve(output, total_variation=None if caused is None else torch.zeros_like(caused))


BUGS = bugs_of(vars())
ALL_BUGS = (*bugs_in_draws.BUGS, *bugs_in_laws.BUGS, *bugs_in_masks.BUGS, *BUGS)
OF_LAWS = tuple(bug for bug in ALL_BUGS if bug.check is not None)
"""The planted bugs that change a law."""
