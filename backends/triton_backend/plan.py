"""Which kernels a call needs, chosen from what the host knows without asking the device.

This module refuses to launch anything.
"""

import math

import torch
from attrs import frozen
from torch import Tensor
from triton import next_power_of_2

from ...core.batch import SampleBatch, VerifyBatch
from ...core.errors import UnavailableError
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
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from .workspace import Layout, num_blocks

CHUNK_ROWS = 4
SKIPPING_REQS = {"strict": 64, "greedy": 128, "probabilistic": 128}
"""Fewer requests are read at once, so that nobody can tell anybody anything in time."""
LOSSY = frozenset({"typical", "relaxed", "fly"})
TESTS_DRAFT = frozenset({"probabilistic", "block"})


@frozen
class Leniency:
    """The parameters of lossy policies, each under the policies that have it, see `lossy`."""

    strictness: float = 0.0
    delta: float = 0.0
    top_n: int = 0
    window: int = 0


@frozen
class Plan:
    """The compile-time side of a call.

    Attributes:
        policy: "strict", "rates", "probabilistic", "block", or one of `LOSSY`.
        rates: conditional acceptance rates in units of 2**-23, for "rates".
        leniency: what a lossy policy is called with, see `Leniency`.
        num_drafts: max_spec_len.
        reads_draft: draft logits are read.
        any_greedy, all_greedy: of the target's recipe.
        key_shift: how many low bits of every logit's key are the same.
        layout: of the workspace.
        is_plain: all rows are of one dtype and taken as they are.
        overlaps: see `overlap`.
    """

    policy: str
    rates: tuple[int, ...]
    leniency: "Leniency"
    num_drafts: int
    reads_draft: bool
    any_greedy: bool
    all_greedy: bool
    key_shift: int
    layout: Layout
    is_plain: bool
    overlaps: bool = False

    @property
    def chunk(self) -> int:
        """Rows that are decided at once."""
        return int(min(next_power_of_2(self.num_drafts + 1), CHUNK_ROWS))

    @property
    def is_lossy(self) -> bool:
        """Whether it takes the kernels of lossy policies."""
        return self.policy in LOSSY

    @property
    def width(self) -> int:
        """Blocks per row as kernels see them: a power of 2, at least one Philox group."""
        return int(max(next_power_of_2(self.layout.num_blocks), 4))


def plan_verify(batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> Plan:
    """The plan of `verify`.

    Raises:
        UnavailableError: the policy is not one of those that have kernels.
    """
    name, rates = _kernel_policy(policy)
    if params.target.all_greedy and policy.greedy_is_strict:
        name = "strict"
    tests_draft = name in TESTS_DRAFT
    reads_draft = (tests_draft or name in LOSSY) and batch.draft_logits is not None
    reads_draft = reads_draft and not params.draft.all_greedy and batch.max_spec_len > 0
    vocab_size = batch.vocab_size
    if reads_draft and batch.draft_logits is not None:
        vocab_size = max(vocab_size, batch.draft_logits.shape[-1])
    # Relaxed acceptance ranks tokens as filters do.
    filtered = (
        name == "relaxed"
        or has_filters(params.target)
        or (reads_draft and has_filters(params.draft))
    )
    has_summaries = name != "strict" or filtered or params.num_logprobs is not None
    is_plain = _is_plain(params, batch.target_logits, batch.draft_logits if reads_draft else None)
    return Plan(
        policy=name,
        rates=rates,
        leniency=_leniency(policy, batch.vocab_size),
        num_drafts=batch.max_spec_len,
        reads_draft=reads_draft,
        any_greedy=params.target.any_greedy,
        all_greedy=params.target.all_greedy,
        key_shift=_key_shift(params, batch.target_logits, batch.draft_logits),
        is_plain=is_plain,
        layout=Layout(
            num_reqs=batch.num_reqs,
            num_rows=batch.max_spec_len + 1 + batch.max_spec_len * reads_draft,
            num_blocks=num_blocks(vocab_size),
            num_residuals=(reads_draft and name == "block") * (batch.max_spec_len - 1),
            has_filters=filtered,
            has_summaries=has_summaries,
            skips_rows=is_plain
            and not filtered
            and batch.num_reqs >= _skipping_reqs(name, all_greedy=params.target.all_greedy),
            num_raw_rows=0 if params.num_logprobs is None else batch.max_spec_len + 1,
            num_verdicts=batch.max_spec_len + 1,
        ),
    )


def plan_sample(batch: SampleBatch, params: SamplingTensors, recipe: RecipeTensors) -> Plan:
    """The plan of `sample`: strict verification of a draft of no tokens."""
    vocab_size = sampled_vocab_size(batch)
    filtered = has_filters(recipe)
    return Plan(
        policy="strict",
        rates=(),
        leniency=Leniency(),
        num_drafts=0,
        reads_draft=False,
        any_greedy=recipe.any_greedy,
        all_greedy=recipe.all_greedy,
        key_shift=_key_shift(params, batch.logits, None),
        is_plain=batch.draft_to_target is None and _is_plain(params, batch.logits, None),
        layout=Layout(
            num_reqs=batch.num_reqs,
            num_rows=1,
            num_blocks=num_blocks(vocab_size),
            num_residuals=0,
            has_filters=filtered,
            has_summaries=filtered or params.num_logprobs is not None,
            skips_rows=False,
            num_raw_rows=int(params.num_logprobs is not None and batch.draft_index is None),
            num_verdicts=1,
        ),
    )


def sampled_vocab_size(batch: SampleBatch) -> int:
    """How many ids the drawn tokens belong to."""
    if batch.draft_to_target is not None and batch.target_vocab_size is not None:
        return batch.target_vocab_size
    return batch.logits.shape[1]


def _skipping_reqs(policy: str, *, all_greedy: bool) -> float:
    if policy == "strict" and all_greedy:
        policy = "greedy"
    return SKIPPING_REQS.get(policy, math.inf)


def _key_shift(params: SamplingTensors, logits: Tensor, draft_logits: Tensor | None) -> int:
    # As float32, bfloat16 logits have 16 bits of zeros and float16 ones 13, unless something is
    # added to them.
    if params.bias is not None or params.penalties is not None:
        return 0
    shifts = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}
    tensors = [logits] if draft_logits is None else [logits, draft_logits]
    return min(shifts[tensor.dtype] for tensor in tensors)


def _is_plain(params: SamplingTensors, logits: Tensor, draft_logits: Tensor | None) -> bool:
    adjusted = params.bias is not None or params.penalties is not None
    same_dtype = draft_logits is None or draft_logits.dtype == logits.dtype
    return same_dtype and not adjusted and params.num_logprobs is None


def has_filters(recipe: RecipeTensors) -> bool:
    """Whether some request cuts tokens off."""
    return recipe.any_min_p or recipe.any_top_k or recipe.any_top_p


def _kernel_policy(policy: Policy) -> tuple[str, tuple[int, ...]]:
    match policy:
        case Strict():
            return "strict", ()
        case Probabilistic():
            return "probabilistic", ()
        case Block():
            return "block", ()
        case Synthetic():
            return "rates", tuple(_in_uniform_steps(rate) for rate in policy.conditional_rates)
        case Typical() | RelaxedTopN() | Fly():
            return policy.name, ()
    raise UnavailableError(f"policy: backend triton has no kernels for {type(policy).__name__}")


def _leniency(policy: Policy, vocab_size: int) -> Leniency:
    match policy:
        case Typical():
            return Leniency(strictness=policy.epsilon, delta=policy.delta)
        case RelaxedTopN():
            return Leniency(top_n=policy.top_n, delta=policy.delta)
        case Fly():
            nats = policy.min_entropy * math.log(vocab_size)
            return Leniency(strictness=nats, window=policy.window)
    return Leniency()


def _in_uniform_steps(rate: float) -> int:
    # The uniform is (n + 1/2) / 2**23: it is below the rate iff n is below this.
    return math.ceil(rate * 2**23 - 0.5)
