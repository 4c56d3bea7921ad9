"""Backends with one planted bug each: the reference with one thing changed.

Each is a bug that some engine has had, or nearly had. This module refuses to be subtle.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.backends.reference import ReferenceSampler, draw, recipe, request, verify
from acceptor.core import (
    Policy,
    SampleBatch,
    SampleOutput,
    SamplingTensors,
    Stream,
    VerifyBatch,
    VerifyOutput,
    race,
)
from acceptor.core.randomness import Level, exponential, random_words
from kit.no_workspace import NoWorkspace

Batch = VerifyBatch | SampleBatch
Change = tuple[object, str, object]


def _as_set(features: Iterable[str]) -> frozenset[str]:
    return frozenset(features)


@frozen
class WrongSampler(NoWorkspace):
    """The reference with a bug.

    Attributes:
        name: what is wrong.
        changes: (owner, attribute, what to put there) while a call runs.
        misread: what it makes of a batch and its parameters before it begins.
        spoil: what it does to the output of a verification.
        policy: the only policy under which it shows; None if it shows under all.
        features: what batches need for it to show soon.
        least_vocab_size: the same.
    """

    name: str
    changes: tuple[Change, ...] = ()
    misread: Callable[[Any, SamplingTensors], tuple[Any, SamplingTensors]] | None = None
    spoil: Callable[[VerifyBatch, VerifyOutput], VerifyOutput] | None = None
    policy: str | None = None
    features: frozenset[str] = field(default=frozenset(), converter=_as_set)
    least_vocab_size: int = 1

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        with self._changed():
            if self.misread is not None:
                batch, params = self.misread(batch, params)
            output = ReferenceSampler().verify(batch, params, policy, **memory)
            return output if self.spoil is None else self.spoil(batch, output)

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        """See `Sampler.sample`."""
        with self._changed():
            if self.misread is not None:
                batch, params = self.misread(batch, params)
            return ReferenceSampler().sample(batch, params, **memory)

    def _changed(self) -> ExitStack:
        stack = ExitStack()
        for owner, attribute, new in self.changes:
            stack.enter_context(patch.object(owner, attribute, new))
        return stack


def _last_argmax(logits: Tensor) -> Tensor:
    last = logits.shape[-1] - 1 - logits.flip(-1).argmax(dim=-1, keepdim=True)
    return torch.full_like(logits, -torch.inf).scatter_(1, last, 0.0)


def _with_stream(wrong: Stream, instead_of: Stream) -> Callable[..., Tensor]:
    def words(
        seeds: Tensor, positions: Tensor, indices: Tensor, stream: Stream, *rest: Any
    ) -> Tensor:
        chosen = wrong if stream is instead_of else stream
        return random_words(seeds, positions, indices, chosen, *rest)

    return words


def _without_draft_index(seeds: Tensor, positions: Tensor, indices: Tensor, *rest: Any) -> Tensor:
    return random_words(seeds, positions, torch.zeros_like(indices), *rest)


def _next_words(
    seeds: Tensor,
    positions: Tensor,
    indices: Tensor,
    stream: Stream,
    level: Level,
    candidates: Tensor,
) -> Tensor:
    words = random_words(seeds, positions, indices, stream, level, candidates)
    return words.roll(1, dims=-1)


def _one_flat_race(log_weights: Tensor, words: race.WordSource) -> Tensor:
    ids = torch.arange(log_weights.shape[1]).expand_as(log_weights)
    return (log_weights - exponential(words(Level.TOKEN, ids)).log()).argmax(dim=-1)


def _coarse_exponential(words: Tensor) -> Tensor:
    return -(words.float() * 2.0**-32).log()


def _uniform_from_0(words: Tensor) -> Tensor:
    return (words >> 9).to(torch.float64) * 2.0**-23


def _at_most(log_thresholds: Tensor, draws: Any) -> Tensor:
    accepted: Tensor = draws.uniforms(len(log_thresholds)).log() <= log_thresholds
    return accepted


def _rounding_exponential(words: Tensor) -> Tensor:
    uniform = ((words.float() + 0.5) * 2.0**-32).to(torch.float64)
    return -torch.log1p(-uniform)


WRONG_DRAWS = (
    WrongSampler(
        "ties go to the last index",
        ((recipe, "_one_hot_at_argmax", _last_argmax),),
        features=("greedy", "masked"),
    ),
    WrongSampler(
        "recovery shares the draft's noise",
        ((draw, "random_words", _with_stream(Stream.DRAFT, Stream.RECOVER)),),
    ),
    WrongSampler(
        "bonus tokens use the recovery stream",
        ((draw, "random_words", _with_stream(Stream.RECOVER, Stream.TARGET)),),
    ),
    WrongSampler("noise forgets the draft index", ((draw, "random_words", _without_draft_index),)),
    WrongSampler("noise belongs to the neighbour", ((draw, "random_words", _next_words),)),
    WrongSampler("one flat race", ((draw, "race", _one_flat_race),), least_vocab_size=513),
    WrongSampler("-log u for -log1p(-u)", ((race, "exponential", _coarse_exponential),)),
    WrongSampler("u rounds to 1", ((race, "exponential", _rounding_exponential),)),
    WrongSampler(
        "u <= threshold with u from 0",
        ((draw, "acceptance_uniform", _uniform_from_0), (verify, "_verdicts", _at_most)),
    ),
)


def flat_race() -> WrongSampler:
    """One of them, for commands that name a backend."""
    return next(wrong for wrong in WRONG_DRAWS if wrong.name == "one flat race")


def _keep_above(scaled: Tensor, threshold: Tensor) -> Tensor:
    highest = scaled.amax(dim=-1, keepdim=True)
    return scaled.masked_fill((scaled <= threshold) & (scaled < highest), -torch.inf)


def _stop_before_top_p(scaled: Tensor, top_p: Tensor) -> Tensor:
    ordered = scaled.sort(dim=-1, descending=True).values
    mass = ordered.softmax(dim=-1).cumsum(dim=-1)
    num_kept = (mass < top_p).sum(dim=-1, keepdim=True).clamp(min=1)
    last_kept = ordered.gather(1, num_kept - 1)
    return scaled.masked_fill((scaled < last_kept) & (top_p < 1), -torch.inf)


def _top_p_first(scaled: Tensor, filters: Any, requests: Tensor) -> Tensor:
    if filters.any_top_p:
        scaled = recipe._cut_top_p(scaled, filters.top_p[requests, None].to(torch.float64))
    if filters.any_top_k:
        scaled = recipe._cut_top_k(scaled, filters.top_k[requests, None].long())
    if filters.any_min_p:
        scaled = recipe._cut_min_p(scaled, filters.min_p[requests, None].to(torch.float64))
    return scaled


def _exactly_k(scaled: Tensor, top_k: Tensor) -> Tensor:
    rank = torch.where(top_k == 0, scaled.shape[1], top_k).clamp(max=scaled.shape[1])
    order = scaled.sort(dim=-1, descending=True, stable=True).indices.argsort(dim=-1)
    return scaled.masked_fill(order >= rank, -torch.inf)


def _forget_drafts(counts: Any, slots: Tensor, _: Tensor | None = None) -> recipe.SeenTokens:
    return recipe.SeenTokens(counts.prompt_mask[slots], counts.output_counts[slots])


def _raw_draft_law(batch: VerifyBatch, params: SamplingTensors) -> tuple[Any, SamplingTensors]:
    if isinstance(batch, SampleBatch):
        return batch, params
    ones = torch.where(params.draft.temperature == 0, 0.0, 1.0)
    plain = evolve(
        params.draft, temperature=ones, any_min_p=False, any_top_k=False, any_top_p=False
    )
    return batch, evolve(params, draft=plain)


def _penalties_before_bias(
    logits: Tensor, params: SamplingTensors, requests: Tensor, seen: recipe.SeenTokens | None
) -> Tensor:
    adjusted = logits.to(torch.float64)
    if params.penalties is not None and seen is not None:
        adjusted = recipe._penalise(adjusted, params.penalties, requests, seen)
    if params.bias is not None:
        adjusted = recipe._add_bias(adjusted, params.bias, requests)
    return adjusted


WRONG_LAWS = (
    WrongSampler(
        "filters cut the edge", ((recipe, "_keep_from", _keep_above),), features=("top-k",)
    ),
    WrongSampler(
        "top-p stops a token early",
        ((recipe, "_cut_top_p", _stop_before_top_p),),
        features=("top-p",),
    ),
    WrongSampler(
        "top-p before top-k", ((recipe, "_filtered", _top_p_first),), features=("top-p", "top-k")
    ),
    WrongSampler("top-k breaks ties", ((recipe, "_cut_top_k", _exactly_k),), features=("top-k",)),
    WrongSampler("raw q, processed drafts", misread=_raw_draft_law, features=("temperature",)),
    WrongSampler(
        "penalties forget the draft",
        ((recipe.SeenTokens, "before_rows", _forget_drafts),),
        features=("penalties",),
    ),
    WrongSampler(
        "penalties before the bias",
        ((request, "adjust_logits", _penalties_before_bias),),
        features=("penalties", "bias"),
    ),
)
