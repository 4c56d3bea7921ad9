"""Logprobs of emitted tokens and of the most likely ones."""

import torch
from torch import Tensor

from ...core.batch import PADDING_TOKEN_ID
from ...core.output import Logprobs
from ...core.sampling_tensors import SamplingTensors
from .recipe import log_probs


def row_logprobs(
    raw_logits: Tensor, logits: Tensor, params: SamplingTensors, requests: Tensor
) -> Tensor:
    """Log-probabilities in each request's mode.

    Args:
        raw_logits: [num_rows, vocab_size] as the model gave them.
        logits: [num_rows, vocab_size] float64, after bias and penalties.
        params: the batch's parameters.
        requests: [num_rows] int64, the request that each row belongs to.

    Returns:
        [num_rows, vocab_size] float64.
    """
    raw = raw_logits.to(torch.float64).log_softmax(dim=-1)
    greedy = params.target.temperature[requests, None] == 0
    drawn_from = log_probs(logits, params.target, requests)
    processed = torch.where(greedy, logits.log_softmax(dim=-1), drawn_from)
    return torch.where(params.logprobs_processed[requests, None], processed, raw)


def clear_logprobs(into: Logprobs) -> None:
    """Say that nothing was emitted."""
    into.emitted.fill_(-torch.inf)
    into.top_token_ids.fill_(PADDING_TOKEN_ID)
    into.top.fill_(-torch.inf)


def write_logprobs(
    into: Logprobs, places: tuple[Tensor, Tensor], logprobs: Tensor, token_ids: Tensor
) -> None:
    """Enter rows of logprobs.

    Args:
        into: what to write to.
        places: (requests [num_rows], places in the output [num_rows]).
        logprobs: [num_rows, vocab_size] float64.
        token_ids: [num_rows] int64, what was emitted.
    """
    into.emitted[places] = logprobs.gather(1, token_ids[:, None]).squeeze(1).float()
    # A stable sort puts the lowest id first among equals.
    ordered = logprobs.sort(dim=-1, descending=True, stable=True)
    top_n = into.top.shape[-1]
    into.top_token_ids[places] = ordered.indices[:, :top_n]
    into.top[places] = ordered.values[:, :top_n].float()
