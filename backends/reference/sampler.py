"""The reference sampler: plain PyTorch in float64, the oracle all other backends are held to.

It loops over requests and waits for the device; it refuses to trade clarity for speed.
"""

from functools import partial

import torch
from torch import Tensor

from ...core.batch import PADDING_TOKEN_ID, SampleBatch, VerifyBatch
from ...core.fit import check_sample_fits, check_verify_fits
from ...core.output import Logprobs, SampleOutput, Status, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from .draw import draw, draw_draft
from .logprobs import empty_logprobs, row_logprobs, write_logprobs
from .recipe import SeenTokens, adjust_logits, is_usable, log_probs
from .request import in_target_ids
from .verify import Outcome, verify_request


class ReferenceSampler:
    """A `Sampler` for CPU and CUDA tensors and every policy, also ones it has never seen."""

    def verify(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> VerifyOutput:
        """See `Sampler.verify`."""
        check_verify_fits(batch, params)
        device = batch.target_logits.device
        outcomes = [verify_request(batch, params, policy, r) for r in range(batch.num_reqs)]
        shape = (batch.num_reqs, batch.max_spec_len + 1)
        token_ids = torch.full(shape, PADDING_TOKEN_ID, dtype=torch.int64, device=device)
        for row, outcome in zip(token_ids, outcomes, strict=True):
            row[: len(outcome.token_ids)] = outcome.token_ids
        integers = partial(torch.tensor, dtype=torch.int32, device=device)
        return VerifyOutput(
            token_ids=token_ids,
            num_accepted=integers([o.num_accepted for o in outcomes]),
            status=integers([int(o.status) for o in outcomes]),
            logprobs=_verify_logprobs(shape, params, outcomes, device),
            total_variation=_total_variation(shape, policy, outcomes, device),
        )

    def sample(self, batch: SampleBatch, params: SamplingTensors) -> SampleOutput:
        """See `Sampler.sample`."""
        check_sample_fits(batch, params)
        requests = torch.arange(batch.num_reqs, device=batch.logits.device)
        logits = batch.logits.to(torch.float64)
        if batch.draft_index is None:
            logits = adjust_logits(batch.logits, params, requests, _seen(batch, params, requests))
        usable = is_usable(logits)
        drawn = _draw_rows(batch, params, requests, logits)
        token_ids = torch.where(usable, drawn, PADDING_TOKEN_ID)
        invalid = Status.TARGET_LOGITS_INVALID
        if batch.draft_index is not None:
            invalid = Status.DRAFT_LOGITS_INVALID
        return SampleOutput(
            token_ids=token_ids,
            status=torch.where(usable, int(Status.OK), int(invalid)).to(torch.int32),
            logprobs=_sample_logprobs(batch, params, requests, logits, usable, token_ids),
        )


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


def _total_variation(
    shape: tuple[int, int], policy: Policy, outcomes: list[Outcome], device: torch.device
) -> Tensor | None:
    if policy.lossless or not policy.uses_draft_probs:
        return None
    caused = torch.zeros(shape, device=device)
    for row, outcome in zip(caused, outcomes, strict=True):
        if outcome.total_variation is not None:
            row[: len(outcome.total_variation)] = outcome.total_variation
    return caused


def _verify_logprobs(
    shape: tuple[int, int],
    params: SamplingTensors,
    outcomes: list[Outcome],
    device: torch.device,
) -> Logprobs | None:
    if params.num_logprobs is None:
        return None
    logprobs = empty_logprobs(*shape, params.num_logprobs, device)
    for outcome in outcomes:
        rows = outcome.rows
        places = torch.arange(len(outcome.token_ids), device=device)
        requests = torch.full_like(places, rows.request)
        used = (rows.raw_logits[: len(places)], rows.logits[: len(places)])
        write_logprobs(
            logprobs,
            (requests, places),
            row_logprobs(*used, params, requests),
            outcome.token_ids,
        )
    return logprobs


def _sample_logprobs(
    batch: SampleBatch,
    params: SamplingTensors,
    requests: Tensor,
    logits: Tensor,
    usable: Tensor,
    token_ids: Tensor,
) -> Logprobs | None:
    if params.num_logprobs is None or batch.draft_index is not None:
        return None
    device = batch.logits.device
    logprobs = empty_logprobs(batch.num_reqs, 1, params.num_logprobs, device)
    rows = requests[usable]
    write_logprobs(
        logprobs,
        (rows, torch.zeros_like(rows)),
        row_logprobs(batch.logits[usable], logits[usable], params, rows),
        token_ids[usable],
    )
    return logprobs
