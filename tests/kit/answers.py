"""What a sampler answers to requests that are written down one by one."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from acceptor.backends.conformance.case import FEATURES, Case
from acceptor.backends.conformance.params import all_params
from acceptor.backends.conformance.requests import Inputs, Request
from acceptor.core import Policy, Sampler, SamplingParams, SamplingTensors, VerifyBatch

BAD_VALUES = {"NaN": math.nan, "+inf": math.inf, "only -inf": -math.inf}


@frozen
class Answer:
    """What one request got."""

    token_ids: tuple[int, ...]
    num_accepted: int
    status: int


def request_of(
    draft_token_ids: tuple[int, ...],
    target_logits: Tensor,
    draft_logits: Tensor | None = None,
    **params: Any,
) -> Request:
    """A request with a seed; without draft logits, its draft model finds all tokens alike."""
    if draft_logits is None:
        draft_logits = torch.zeros(len(draft_token_ids), target_logits.shape[1])
    return Request(
        params=SamplingParams(**{"seed": 3} | params),
        target_logits=target_logits,
        draft_token_ids=draft_token_ids,
        draft_logits=draft_logits,
    )


def batch_of(
    requests: Sequence[Request], id_dtype: str = "int64"
) -> tuple[VerifyBatch, SamplingTensors]:
    """The requests as one batch of full vocabularies that counts tokens."""
    vocab_size, features = requests[0].target_logits.shape[1], frozenset(("penalties",))
    case = Case(vocab_size=vocab_size, id_dtype=id_dtype, features=features)
    inputs = Inputs(case, tuple(requests))
    return inputs.verify_batch(), SamplingTensors.stack(inputs.params)


def answers(
    sampler: Sampler, requests: Sequence[Request], policy: Policy, id_dtype: str = "int64"
) -> list[Answer]:
    """Verify requests as one batch."""
    output = sampler.verify(*batch_of(requests, id_dtype), policy)
    columns = (output.token_ids.tolist(), output.num_accepted.tolist(), output.status.tolist())
    return [
        Answer(tuple(token_id for token_id in token_ids if token_id >= 0), count, status)
        for token_ids, count, status in zip(*columns, strict=True)
    ]


def certain(*token_ids: int, vocab_size: int = 5) -> Tensor:
    """Rows of logits that leave no choice: only one token of each has a finite one."""
    rows = torch.full((len(token_ids), vocab_size), -torch.inf)
    rows[torch.arange(len(token_ids)), torch.tensor(token_ids)] = 0.7
    return rows


def spoil(row: Tensor, how: str) -> None:
    """Make a row of logits unusable, in place."""
    if how == "only -inf":
        row.fill_(BAD_VALUES[how])
    else:
        row[len(row) // 2] = BAD_VALUES[how]


def every_mix(count: int, vocab_size: int, seed: int = 0) -> tuple[SamplingParams, ...]:
    """Parameters of requests that ask for anything; the first one asks for everything."""
    features = frozenset(FEATURES) - {"extremes"}
    lengths = (0,) * count
    return all_params(
        Case(seed=seed, vocab_size=vocab_size, num_draft_tokens=lengths, features=features)
    )
