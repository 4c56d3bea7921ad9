"""`acceptor::verify` and `acceptor::sample`, with the shapes of their results.

What is fixed between steps (backend, policy, which filters are on) comes as text, everything on the
device as tensors. Only loaded samplers are kept between calls.
"""

import json
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import Forms, sample_forms, verify_forms
from ...core.output import Logprobs
from ...core.policies import Policy
from ...core.ports import Sampler
from ...core.randomness import Stream
from ...core.token_counts import TokenCounts
from ..registry import load_sampler
from .structure import rebuild


@torch.library.custom_op("acceptor::verify", mutates_args=())
def verify(
    call: str,
    param_tensors: list[Tensor],
    target_logits: Tensor,
    cu_num_logits: Tensor,
    draft_token_ids: Tensor,
    positions: Tensor,
    draft_logits: Tensor | None = None,
    slot_ids: Tensor | None = None,
    draft_to_target: Tensor | None = None,
    prompt_mask: Tensor | None = None,
    output_counts: Tensor | None = None,
    allowed_tokens: Tensor | None = None,
    allowed_rows: Tensor | None = None,
) -> list[Tensor]:
    """See `VerifyOperator`."""
    facts = _facts(call)
    batch = VerifyBatch(
        target_logits=target_logits,
        cu_num_logits=cu_num_logits,
        draft_token_ids=draft_token_ids,
        positions=positions,
        draft_logits=draft_logits,
        slot_ids=slot_ids,
        draft_to_target=draft_to_target,
        token_counts=_token_counts(prompt_mask, output_counts),
        allowed_tokens=allowed_tokens,
        allowed_rows=allowed_rows,
    )
    params = rebuild(facts["params"], param_tensors)
    output = _sampler(facts["backend"]).verify(batch, params, _policy(call))
    results = [output.token_ids, output.num_accepted, output.status, *_parts(output.logprobs)]
    return results if output.total_variation is None else [*results, output.total_variation]


@verify.register_fake
def _(
    call: str,
    param_tensors: list[Tensor],  # noqa: ARG001, the operator's signature
    target_logits: Tensor,
    cu_num_logits: Tensor,  # noqa: ARG001
    draft_token_ids: Tensor,
    *_others: Tensor | None,
) -> list[Tensor]:
    num_reqs, max_spec_len = draft_token_ids.shape
    forms = verify_forms(num_reqs, max_spec_len, _num_logprobs(call), _policy(call))
    return _fakes(forms, target_logits)


@torch.library.custom_op("acceptor::sample", mutates_args=())
def sample(
    call: str,
    param_tensors: list[Tensor],
    logits: Tensor,
    positions: Tensor,
    slot_ids: Tensor | None = None,
    draft_to_target: Tensor | None = None,
    prompt_mask: Tensor | None = None,
    output_counts: Tensor | None = None,
    allowed_tokens: Tensor | None = None,
    allowed_rows: Tensor | None = None,
) -> list[Tensor]:
    """See `SampleOperator`."""
    facts = _facts(call)
    batch = SampleBatch(
        logits=logits,
        positions=positions,
        draft_index=facts["draft_index"],
        draft_stream=Stream(facts["draft_stream"]),
        slot_ids=slot_ids,
        draft_to_target=draft_to_target,
        target_vocab_size=facts["target_vocab_size"],
        token_counts=_token_counts(prompt_mask, output_counts),
        allowed_tokens=allowed_tokens,
        allowed_rows=allowed_rows,
    )
    output = _sampler(facts["backend"]).sample(batch, rebuild(facts["params"], param_tensors))
    return [output.token_ids, output.status, *_parts(output.logprobs)]


@sample.register_fake
def _(
    call: str,
    param_tensors: list[Tensor],  # noqa: ARG001, the operator's signature
    logits: Tensor,
    *_others: Tensor | None,
) -> list[Tensor]:
    num_logprobs = _num_logprobs(call) if _facts(call)["draft_index"] is None else None
    return _fakes(sample_forms(logits.shape[0], num_logprobs), logits)


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


def _token_counts(prompt_mask: Tensor | None, output_counts: Tensor | None) -> TokenCounts | None:
    if prompt_mask is None or output_counts is None:
        return None
    return TokenCounts(prompt_mask, output_counts)


def _parts(logprobs: Logprobs | None) -> list[Tensor]:
    return [] if logprobs is None else [logprobs.emitted, logprobs.top_token_ids, logprobs.top]


def _num_logprobs(call: str) -> int | None:
    num_logprobs: int | None = _facts(call)["params"]["fields"]["num_logprobs"]
    return num_logprobs


def _fakes(forms: Forms, like: Tensor) -> list[Tensor]:
    return [like.new_empty(shape, dtype=dtype) for shape, dtype in forms.values()]
