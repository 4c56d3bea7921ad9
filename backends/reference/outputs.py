"""Writes the outputs: tokens, status, total variation and logprobs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core import PADDING_TOKEN_ID, Logprobs, SampleBatch, SampleOutput, Status, VerifyOutput
from ...core.sampling_tensors import SamplingTensors
from .masks import why_unusable
from .statistics import is_usable
from .thresholds import log_probs, log_softmax
from .verify import Outcome


def write_verified(out: VerifyOutput, params: SamplingTensors, outcomes: Sequence[Outcome]) -> None:
    """Write what every request emits."""
    out.token_ids.fill_(PADDING_TOKEN_ID)
    if out.total_variation is not None:
        out.total_variation.zero_()
    for request, outcome in enumerate(outcomes):
        out.token_ids[request, : len(outcome.token_ids)] = outcome.token_ids
        if out.total_variation is not None and outcome.total_variation is not None:
            decided = len(outcome.total_variation)
            out.total_variation[request, :decided] = outcome.total_variation
    out.num_accepted.copy_(torch.tensor([outcome.num_accepted for outcome in outcomes]))
    out.status.copy_(torch.tensor([int(outcome.status) for outcome in outcomes]))
    if out.logprobs is not None:
        _write_verified_logprobs(out.logprobs, params, outcomes)


def write_drawn(
    out: SampleOutput,
    batch: SampleBatch,
    params: SamplingTensors,
    logits: Tensor,
    drawn: Tensor,
) -> None:
    """Write one drawn token per request.

    Args:
        out: where to write.
        batch: what was drawn from.
        params: the batch's parameters.
        logits: [num_reqs, vocab_size], after bias, penalties and masks.
        drawn: [num_reqs] int64, undefined where the row is not usable.
    """
    usable = is_usable(logits)
    out.token_ids.copy_(torch.where(usable, drawn, PADDING_TOKEN_ID))
    out.status.copy_(torch.where(usable, int(Status.OK), why_unusable(batch, logits, 0)))
    if out.logprobs is None:
        return
    _clear_logprobs(out.logprobs)
    (rows,) = usable.nonzero(as_tuple=True)
    places = (rows, torch.zeros_like(rows))
    logprobs = _row_logprobs(batch.logits[rows], logits[rows], params, rows)
    _write_logprobs(out.logprobs, places, logprobs, drawn[rows])


def _write_verified_logprobs(
    into: Logprobs, params: SamplingTensors, outcomes: Sequence[Outcome]
) -> None:
    _clear_logprobs(into)
    for outcome in outcomes:
        rows, num_tokens = outcome.rows, len(outcome.token_ids)
        places = torch.arange(num_tokens, device=into.emitted.device)
        requests = torch.full_like(places, rows.request)
        logprobs = _row_logprobs(
            rows.raw_logits[:num_tokens], rows.logits[:num_tokens], params, requests
        )
        _write_logprobs(into, (requests, places), logprobs, outcome.token_ids)


def _row_logprobs(
    raw_logits: Tensor, logits: Tensor, params: SamplingTensors, requests: Tensor
) -> Tensor:
    # The logprobs of each request's mode: [num_rows, vocab_size] float64.
    raw = log_softmax(raw_logits)
    greedy = params.target.temperature[requests, None] == 0
    drawn_from = log_probs(logits, params.target, requests)
    processed = torch.where(greedy, log_softmax(logits), drawn_from)
    return torch.where(params.logprobs_processed[requests, None], processed, raw)


def _clear_logprobs(into: Logprobs) -> None:
    into.emitted.fill_(-torch.inf)
    into.top_token_ids.fill_(PADDING_TOKEN_ID)
    into.top.fill_(-torch.inf)


def _write_logprobs(
    into: Logprobs, places: tuple[Tensor, Tensor], logprobs: Tensor, token_ids: Tensor
) -> None:
    into.emitted[places] = logprobs.gather(1, token_ids[:, None]).squeeze(1).float()
    # A stable sort puts the lowest id first among equals.
    ordered = logprobs.sort(dim=-1, descending=True, stable=True)
    top_n = into.top.shape[-1]
    into.top_token_ids[places] = ordered.indices[:, :top_n]
    into.top[places] = ordered.values[:, :top_n].float()
