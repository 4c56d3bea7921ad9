"""`acceptor::verify` and `acceptor::sample`, with the shapes of their results.

What is fixed between steps (backend, policy, which filters are on) comes as text, everything on the
device as tensors. Only loaded samplers are kept between calls.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import sample_output, verify_output
from ...core.policies import Policy
from ...core.ports import Sampler
from ...core.randomness import Stream
from ...core.tensor_fields import named_tensors
from ...core.token_counts import TokenCounts
from ..registry import load_sampler
from .structure import rebuild

Given = list[Tensor | None]
"""The tensors of a batch, in the order of `VERIFY` or `SAMPLE`."""

VERIFY = (
    *("target_logits", "cu_num_logits", "draft_token_ids", "positions", "draft_logits"),
    *("slot_ids", "draft_to_target", "prompt_mask", "output_counts"),
    *("allowed_tokens", "allowed_rows"),
)
SAMPLE = (
    *("logits", "positions", "slot_ids", "draft_to_target", "prompt_mask", "output_counts"),
    *("allowed_tokens", "allowed_rows"),
)


@torch.library.custom_op("acceptor::verify", mutates_args=())
def verify(call: str, param_tensors: list[Tensor], given: Given) -> list[Tensor]:
    """See `VerifyOperator`."""
    facts = _facts(call)
    batch = VerifyBatch(**_fields(VERIFY, given))
    params = rebuild(facts["params"], param_tensors)
    output = _sampler(facts["backend"]).verify(batch, params, _policy(call))
    return _tensors(output)


@verify.register_fake
def _(call: str, param_tensors: list[Tensor], given: Given) -> list[Tensor]:  # noqa: ARG001
    drafts = given[VERIFY.index("draft_token_ids")]
    assert drafts is not None
    num_reqs, max_spec_len = drafts.shape
    size = num_reqs, max_spec_len, _num_logprobs(call)
    return _tensors(verify_output(*size, _policy(call), drafts.device))


@torch.library.custom_op("acceptor::sample", mutates_args=())
def sample(call: str, param_tensors: list[Tensor], given: Given) -> list[Tensor]:
    """See `SampleOperator`."""
    facts = _facts(call)
    batch = SampleBatch(
        draft_index=facts["draft_index"],
        draft_stream=Stream(facts["draft_stream"]),
        target_vocab_size=facts["target_vocab_size"],
        **_fields(SAMPLE, given),
    )
    output = _sampler(facts["backend"]).sample(batch, rebuild(facts["params"], param_tensors))
    return _tensors(output)


@sample.register_fake
def _(call: str, param_tensors: list[Tensor], given: Given) -> list[Tensor]:  # noqa: ARG001
    positions = given[SAMPLE.index("positions")]
    assert positions is not None
    num_logprobs = _num_logprobs(call) if _facts(call)["draft_index"] is None else None
    return _tensors(sample_output(len(positions), num_logprobs, positions.device))


def _fields(names: Sequence[str], given: Given) -> dict[str, Any]:
    """Of a batch: token counts came as two tensors."""
    fields: dict[str, Any] = dict(zip(names, given, strict=True))
    prompt_mask, output_counts = fields.pop("prompt_mask"), fields.pop("output_counts")
    if prompt_mask is not None and output_counts is not None:
        fields["token_counts"] = TokenCounts(prompt_mask, output_counts)
    return fields


@lru_cache(maxsize=1024)
def _facts(call: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(call)
    return facts


@lru_cache(maxsize=1024)
def _policy(call: str) -> Policy:
    policy: Policy = rebuild(_facts(call)["policy"], [])
    return policy


@lru_cache
def _sampler(backend: str) -> Sampler:
    return load_sampler(backend)


def _num_logprobs(call: str) -> int | None:
    num_logprobs: int | None = _facts(call)["params"]["fields"]["num_logprobs"]
    return num_logprobs


def _tensors(output: object) -> list[Tensor]:
    return [tensor for _, tensor in named_tensors(output)]
