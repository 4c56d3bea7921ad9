"""Writes the outputs: tokens, status, total variation and logprobs."""

import torch
from torch import Tensor

from ...core import PADDING_TOKEN_ID, Logprobs, SampleBatch, SampleOutput, Status, VerifyOutput
from ...core.sampling_tensors import SamplingTensors
from .statistics import is_usable, why_unusable
from .thresholds import log_probs, log_softmax


def clear(out: VerifyOutput | SampleOutput) -> None:
    """Write that nothing is emitted."""
    out.token_ids.fill_(PADDING_TOKEN_ID)
    if isinstance(out, VerifyOutput) and out.total_variation is not None:
        out.total_variation.zero_()
    if out.logprobs is not None:
        out.logprobs.emitted.fill_(-torch.inf)
        out.logprobs.top_token_ids.fill_(PADDING_TOKEN_ID)
        out.logprobs.top.fill_(-torch.inf)


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
    if out.logprobs is not None:
        (rows,) = usable.nonzero(as_tuple=True)
        places = (rows, torch.zeros_like(rows))
        write_logprobs(out.logprobs, places, params, batch.logits[rows], logits[rows], drawn[rows])


def write_logprobs(
    into: Logprobs,
    places: tuple[Tensor, Tensor],
    params: SamplingTensors,
    raw_logits: Tensor,
    logits: Tensor,
    token_ids: Tensor,
) -> None:
    """Write logprobs of emitted tokens and of the most likely ones.

    Args:
        into: the memory to write to.
        places: each token's request, and its place there: [num_rows] int64 both.
        params: the batch's parameters.
        raw_logits: [num_rows, vocab_size].
        logits: [num_rows, vocab_size], after bias, penalties and masks.
        token_ids: [num_rows] int64, the emitted tokens.
    """
    logprobs = _row_logprobs(raw_logits, logits, params, places[0])
    into.emitted[places] = logprobs.gather(1, token_ids[:, None]).squeeze(1).float()
    # A stable sort puts the lowest id first among equals.
    ordered = logprobs.sort(dim=-1, descending=True, stable=True)
    top_n = into.top.shape[-1]
    into.top_token_ids[places] = ordered.indices[:, :top_n]
    into.top[places] = ordered.values[:, :top_n].float()


def _row_logprobs(
    raw_logits: Tensor, logits: Tensor, params: SamplingTensors, requests: Tensor
) -> Tensor:
    # The logprobs of each request's mode: [num_rows, vocab_size] float64.
    raw = log_softmax(raw_logits)
    greedy = params.target.temperature[requests, None] == 0
    drawn_from = log_probs(logits, params.target, requests)
    processed = torch.where(greedy, log_softmax(logits), drawn_from)
    return torch.where(params.logprobs_processed[requests, None], processed, raw)
