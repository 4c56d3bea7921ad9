"""Batches for tests that do not care about details, and parameters of every mix."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from acceptor.backends.conformance.case import FEATURES, Case
from acceptor.backends.conformance.params import all_params
from acceptor.core import SamplingParams, SamplingTensors, VerifyBatch


def stacked(
    num_reqs: int, device: str = "cpu", /, recipes: Any = (), **asked: Any
) -> SamplingTensors:
    """Parameters that differ only in seeds, 0, 1 and so on, and in settings of the first ones."""
    own = [*recipes, *[{}] * num_reqs]
    requests = [SamplingParams(seed=seed, **asked | own[seed]) for seed in range(num_reqs)]
    return SamplingTensors.stack(requests, device)


def dense(
    target_logits: Tensor, drafts: Sequence[Sequence[int]] | None = None, **fields: Any
) -> VerifyBatch:
    """A batch of logits [num_reqs, K + 1, vocab_size]; drafts and positions are 0 unless given."""
    num_reqs, num_rows, _ = target_logits.shape
    none = torch.zeros(num_reqs, num_rows - 1, dtype=torch.int64)
    fields["draft_token_ids"] = none if drafts is None else torch.tensor(drafts)
    fields.setdefault("positions", torch.zeros(num_reqs, dtype=torch.int64))
    return VerifyBatch.dense(target_logits=target_logits, **fields)


def every_mix(count: int, vocab_size: int, seed: int = 0) -> tuple[SamplingParams, ...]:
    """Parameters of every mix; the first request uses all of them."""
    features = frozenset(FEATURES) - {"extremes"}
    lengths = (0,) * count
    return all_params(
        Case(seed=seed, vocab_size=vocab_size, num_draft_tokens=lengths, features=features)
    )
