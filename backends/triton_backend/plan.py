"""Chooses the kernels of a call, from what the host knows without asking the device."""

import math
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from triton import next_power_of_2
from triton.language import constexpr

from ...core import Block, Fly, Policy, Probabilistic, RelaxedTopN, Strict, Synthetic, Typical
from ...core.batch import SampleBatch, VerifyBatch
from ...core.errors import UnavailableError
from ...core.race import BLOCK_SIZE
from ...core.sampling_tensors import SamplingTensors
from ..step import step_of
from .arguments import Leniency, Variant
from .workspace import Layout

MOST_FILTERED = 2**19 - 1
"""Filters add up masses of at most 2**44 units each, as int64."""

MOST_EXTRA = 2**18
"""Four blocks are compared with all at once, and a tensor has at most 2**20 elements."""

NOT_LENIENT = Leniency(0.0, 0.0, 0, 0)

ZERO_BITS = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}
"""How many low bits of a logit are 0 as float32, unless something is added to it."""


@frozen
class Plan:
    """The part of a call that needs no device.

    Attributes:
        variant: the constants that kernels are compiled for, as plain values.
        fixed: the last fields of a `Call`, in the kernels' form.
        layout: the workspace's.
        reads_draft: whether draft logits are read.
        is_adjusted: whether some request has a bias or penalties.
        is_masked: whether some row has a mask.
    """

    variant: Variant
    fixed: tuple[Any, ...]
    layout: Layout
    reads_draft: bool
    is_adjusted: bool
    is_masked: bool


def plan_of(
    batch: VerifyBatch | SampleBatch,
    params: SamplingTensors,
    policy: Policy | None = None,
    *,
    overlaps: bool = False,
) -> Plan:
    """The plan of a verification or, without a policy, of a draw.

    Raises:
        UnavailableError: there are no kernels for the policy, for a vocabulary of this size, or
            for so many biases.
    """
    step = step_of(batch, params, policy)
    params, draft = step.params, step.draft_logits
    name, rates, leniency = _kernel_policy(step.policy, batch.vocab_size)
    # Relaxed acceptance ranks tokens as filters do.
    is_relaxed, recipes, logits = name == "relaxed", [params.target], [step.logits]
    if draft is not None:
        recipes, logits = [params.target, params.draft], [step.logits, draft]
    ranks = is_relaxed or any(recipe.any_min_p or recipe.any_top_k for recipe in recipes)
    masses = any(recipe.any_top_p for recipe in recipes)
    if (ranks or masses) and batch.vocab_size > MOST_FILTERED:
        raise UnavailableError(
            f"vocab_size: backend triton filters at most {MOST_FILTERED} tokens, "
            f"got {batch.vocab_size}"
        )
    num_blocks = -(-batch.vocab_size // BLOCK_SIZE)
    has_raw, has_penalties = params.num_logprobs is not None, params.penalties is not None
    is_adjusted = params.bias is not None or has_penalties
    num_extra = step.num_drafts if has_penalties else 0
    num_extra += 0 if params.bias is None else params.bias.token_ids.shape[1]
    if num_extra > MOST_EXTRA:
        raise UnavailableError(
            f"logit_bias: backend triton takes at most {MOST_EXTRA} biased and drafted tokens, "
            f"got {num_extra}"
        )
    zeros = min(ZERO_BITS[rows.dtype] for rows in logits)
    variant = Variant(
        policy=name,
        is_lossy=leniency is not NOT_LENIENT,
        rates=rates,
        num_drafts=step.num_drafts,
        num_rows=1 + step.num_drafts * (1 + (draft is not None) + is_relaxed),
        width=max(next_power_of_2(num_blocks), 4),
        filters=ranks or masses,
        ranks=ranks,
        masses=masses,
        key_shift=0 if is_adjusted else zeros,
        invalid=int(step.invalid),
        top_logprobs=params.num_logprobs or 0,
        extra_width=next_power_of_2(max(num_extra, 1)),
        realigns=any(map(_begins_anywhere, logits)),
        overlaps=overlaps,
    )
    lists = is_adjusted and variant.filters and zeros == 16
    constants = Variant(*map(constexpr, variant))
    constants = constants._replace(rates=tuple(map(constexpr, rates)) or constexpr(None))
    return Plan(
        variant,
        (tuple(leniency), int(step.stream), step.draft_index, tuple(constants)),
        Layout(batch.num_reqs, num_blocks, variant, has_raw, has_penalties, lists),
        reads_draft=draft is not None,
        is_adjusted=is_adjusted,
        is_masked=batch.allowed_tokens is not None,
    )


def _begins_anywhere(logits: Tensor) -> bool:
    steps = [2 * step for step in logits.stride()[:-1]]
    return logits.element_size() == 2 and any(n % 16 for n in (logits.data_ptr(), *steps))


def _kernel_policy(policy: Policy, vocab_size: int) -> tuple[str, tuple[int, ...], Leniency]:
    match policy:
        case Strict():
            return "strict", (), NOT_LENIENT
        case Probabilistic() | Block():
            return policy.name, (), NOT_LENIENT
        case Synthetic():
            # The uniform is (n + 1/2) / 2**23: it is below the rate iff n is below this number.
            rates = tuple(math.ceil(rate * 2**23 - 0.5) for rate in policy.conditional_rates)
            return "rates", rates or (0,), NOT_LENIENT
        case Typical():
            return policy.name, (), Leniency(policy.epsilon, policy.delta, 0, 0)
        case RelaxedTopN():
            return policy.name, (), Leniency(0.0, policy.delta, policy.num_likely, 0)
        case Fly():
            nats = policy.min_entropy * math.log(vocab_size)
            return policy.name, (), Leniency(nats, 0.0, 0, policy.window)
    raise UnavailableError(f"policy: backend triton has no kernels for {type(policy).__name__}")
