"""Which kernels a call needs, chosen from what the host knows without asking the device."""

import math
from functools import cached_property

import torch
from attrs import frozen
from torch import Tensor
from triton import next_power_of_2
from triton.language import constexpr

from ...core.batch import SampleBatch, VerifyBatch
from ...core.errors import UnavailableError
from ...core.output import Status
from ...core.policies import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    Strict,
    Synthetic,
    Typical,
)
from ...core.race import BLOCK_SIZE
from ...core.randomness import Stream
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from .arguments import Leniency, Variant
from .workspace import Layout

TESTED = frozenset({"probabilistic", "block"})

SAMPLE = 4096
"""Logits of a row that say where its threshold lies: 32 for each of a program's threads."""

NOT_LENIENT = Leniency(0.0, 0.0, 0, 0)


@frozen(slots=False)
class Plan:
    """The side of a call that needs no device.

    Attributes:
        variant: what kernels are compiled for, as plain values.
        leniency: what a lossy policy is called with.
        layout: of the workspace.
        reads_draft: draft logits are read.
        draws_draft: draft tokens are drawn.
        is_adjusted: some request has a bias or penalties.
        noise: the stream and the draft index of the target's own samples.
    """

    variant: Variant
    leniency: Leniency
    layout: Layout
    reads_draft: bool
    draws_draft: bool
    is_adjusted: bool
    noise: tuple[int, int]

    @cached_property
    def constants(self) -> Variant:
        """The variant as kernels take it."""
        rates = tuple(map(constexpr, self.variant.rates)) or constexpr(None)
        return Variant(*map(constexpr, self.variant))._replace(rates=rates)


def plan_verify(batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Plan:
    """The plan of `verify`.

    Raises:
        UnavailableError: the policy is not one of those that have kernels.
    """
    name, rates, leniency = _kernel_policy(policy, batch.vocab_size)
    num_drafts, draft = batch.max_spec_len, batch.draft_logits
    if num_drafts == 0 or (params.target.all_greedy and policy.greedy_is_strict):
        name, leniency = "strict", NOT_LENIENT
    is_lossy = leniency is not NOT_LENIENT
    reads_draft = (name in TESTED or is_lossy) and draft is not None
    reads_draft = reads_draft and not params.draft.all_greedy and num_drafts > 0
    recipes = [params.target, *([params.draft] if reads_draft else [])]
    # Relaxed acceptance ranks tokens as filters do.
    ranks = any(r.any_min_p or r.any_top_k for r in recipes) or name == "relaxed"
    masses = any(r.any_top_p for r in recipes)
    vocab_size = batch.vocab_size
    if reads_draft and draft is not None:
        vocab_size = max(vocab_size, draft.shape[-1])
    layout = Layout(
        num_reqs=batch.num_reqs,
        num_rows=num_drafts + 1 + num_drafts * (reads_draft + (name == "relaxed")),
        num_verdicts=num_drafts + 1,
        num_blocks=num_blocks(vocab_size),
        filters=ranks or masses,
        has_sums=is_lossy or name == "block",
        has_raw=params.num_logprobs is not None,
        has_penalties=params.penalties is not None,
    )
    variant = _variant(layout, params, batch.target_logits, draft if reads_draft else None)
    variant = variant._replace(policy=name, is_lossy=is_lossy, rates=rates)
    variant = variant._replace(ranks=ranks, masses=masses)
    return Plan(
        variant,
        leniency,
        layout,
        reads_draft,
        draws_draft=False,
        is_adjusted=params.bias is not None or params.penalties is not None,
        noise=(int(Stream.TARGET), 0),
    )


def plan_sample(batch: SampleBatch, params: SamplingTensors) -> Plan:
    """The plan of `sample`: strict verification of a draft of no tokens."""
    for_target = batch.draft_index is None
    recipe = recipe_of(batch, params)
    ranks = recipe.any_min_p or recipe.any_top_k
    vocab_size = batch.vocab_size
    layout = Layout(
        num_reqs=batch.num_reqs,
        num_rows=1,
        num_verdicts=1,
        num_blocks=num_blocks(vocab_size),
        filters=ranks or recipe.any_top_p,
        has_sums=False,
        has_raw=for_target and params.num_logprobs is not None,
        has_penalties=for_target and params.penalties is not None,
    )
    variant = _variant(layout, params, batch.logits, None)
    if not for_target:
        variant = variant._replace(invalid=int(Status.DRAFT_LOGITS_INVALID))
    index = 0 if batch.stream is Stream.TARGET else batch.draft_index or 0
    return Plan(
        variant._replace(ranks=ranks, masses=recipe.any_top_p),
        NOT_LENIENT,
        layout,
        reads_draft=False,
        draws_draft=not for_target,
        is_adjusted=for_target and (params.bias is not None or params.penalties is not None),
        noise=(int(batch.stream), index),
    )


def _variant(
    layout: Layout, params: SamplingTensors, logits: Tensor, draft_logits: Tensor | None
) -> Variant:
    """Of a strict call without filters that does not overlap."""
    num_biases = 0 if params.bias is None else params.bias.token_ids.shape[1]
    return Variant(
        policy="strict",
        is_lossy=False,
        rates=(),
        num_drafts=layout.num_verdicts - 1,
        num_rows=layout.num_rows,
        width=max(next_power_of_2(layout.num_blocks), 4),
        filters=layout.filters,
        ranks=False,
        masses=False,
        key_shift=_key_shift(params, logits, draft_logits),
        same_dtype=draft_logits is None or draft_logits.dtype == logits.dtype,
        sample=min(SAMPLE, next_power_of_2(layout.num_blocks * BLOCK_SIZE)),
        invalid=int(Status.TARGET_LOGITS_INVALID),
        top_logprobs=params.num_logprobs or 0,
        bias_width=next_power_of_2(max(num_biases, 1)),
        overlaps=False,
    )


def recipe_of(batch: SampleBatch, params: SamplingTensors) -> RecipeTensors:
    """What a sample's rows are drawn with."""
    return params.target if batch.draft_index is None else params.draft


def num_blocks(vocab_size: int) -> int:
    """Blocks of 512 tokens, the last one may be short."""
    return -(-vocab_size // BLOCK_SIZE)


def _key_shift(params: SamplingTensors, logits: Tensor, draft_logits: Tensor | None) -> int:
    # As float32, bfloat16 logits have 16 bits of zeros and float16 ones 13, unless something is
    # added to them.
    if params.bias is not None or params.penalties is not None:
        return 0
    shifts = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}
    tensors = [logits] if draft_logits is None else [logits, draft_logits]
    return min(shifts[tensor.dtype] for tensor in tensors)


def _kernel_policy(policy: Policy, vocab_size: int) -> tuple[str, tuple[int, ...], Leniency]:
    match policy:
        case Strict():
            return "strict", (), NOT_LENIENT
        case Probabilistic() | Block():
            return policy.name, (), NOT_LENIENT
        case Synthetic():
            rates = tuple(_in_uniform_steps(rate) for rate in policy.conditional_rates)
            return "rates", rates or (0,), NOT_LENIENT
        case Typical():
            return policy.name, (), Leniency(policy.epsilon, policy.delta, 0, 0)
        case RelaxedTopN():
            return policy.name, (), Leniency(0.0, policy.delta, policy.top_n, 0)
        case Fly():
            nats = policy.min_entropy * math.log(vocab_size)
            return policy.name, (), Leniency(nats, 0.0, 0, policy.window)
    raise UnavailableError(f"policy: backend triton has no kernels for {type(policy).__name__}")


def _in_uniform_steps(rate: float) -> int:
    # The uniform is (n + 1/2) / 2**23: it is below the rate iff n is below this.
    return math.ceil(rate * 2**23 - 0.5)
