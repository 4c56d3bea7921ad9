"""Bugs planted on purpose, most of them once shipped by somebody, and the check that sees each.

A mutant replaces one part of the reference backend or of a policy while it lives. This module
refuses mutants that no check is named for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends.reference import draw, recipe, request, sampler, verify
from acceptor.core import Block, DraftView, Policy, Probabilistic, Rule, Stream, Strict
from acceptor.core import race as core_race
from kit.proof.checks import CHECKS, Evidence

Patch = pytest.MonkeyPatch


@frozen
class Mutant:
    """One planted bug.

    Attributes:
        name: what is wrong.
        plant: puts it into the code.
        check: the name of the check that must fail.
        policy: the policy whose frequencies a sample shows it in; None if no sample would.
    """

    name: str
    plant: Callable[[Patch], None]
    check: str
    policy: Policy | None = None

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let it live for a while."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            yield

    def evidence(self) -> Evidence:
        """What its check measures while it lives."""
        with self.planted():
            return CHECKS[self.check].measure()


class _OtherStream:
    """`Stream` as the verification knows it, but recovered tokens use the noise of another."""

    def __init__(self, recover: Stream) -> None:
        self.RECOVER, self.TARGET = recover, Stream.TARGET


def _recover_with(stream: Stream) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(verify, "Stream", _OtherStream(stream))


def _draft_with_target_noise(patch: Patch) -> None:
    patch.setattr(Block, "draft_stream", Stream.TARGET)


def _residual_is_target(patch: Patch) -> None:
    patch.setattr(
        Probabilistic, "log_residual", lambda _, view, row: view.target_log_probs[row].clone()
    )


def _residual_without_subtraction(patch: Patch) -> None:
    def log_residual(_: object, view: DraftView, row: int) -> Tensor:
        assert view.draft_log_probs is not None
        log_p, log_q = view.target_log_probs[row], view.draft_log_probs[row]
        return torch.where(log_p > log_q, log_p, -torch.inf)

    patch.setattr(Probabilistic, "log_residual", log_residual)


def _residual_as_if_one_hot(patch: Patch) -> None:
    def log_residual(_: object, view: DraftView, row: int) -> Tensor:
        return view.target_log_probs[row].index_fill(0, view.draft_token_ids[row], -torch.inf)

    patch.setattr(Probabilistic, "log_residual", log_residual)


def _accepts_equal_samples_too(patch: Patch) -> None:
    thresholds = Probabilistic.log_thresholds

    def log_thresholds(policy: Probabilistic, view: DraftView) -> Tensor:
        return torch.maximum(thresholds(policy, view), Strict().log_thresholds(view))

    patch.setattr(Probabilistic, "log_thresholds", log_thresholds)
    patch.setattr(Probabilistic, "uses_target_samples", True)


def _raw_draft_probs(patch: Patch) -> None:
    patch.setattr(request, "log_probs", lambda logits, *_: logits.log_softmax(dim=-1))


def _draft_ids_unmapped(patch: Patch) -> None:
    real = request.in_target_ids
    patch.setattr(request, "in_target_ids", lambda law, size, _: real(law, size, None))


def _target_cut_to_the_draft(patch: Patch) -> None:
    def change(view: DraftView) -> DraftView:
        if view.draft_log_probs is None or view.num_draft_tokens == 0:
            return view
        known = view.draft_log_probs[0] > -torch.inf
        cut = view.target_log_probs.masked_fill(~known, -torch.inf).log_softmax(dim=-1)
        return evolve(view, target_log_probs=cut)

    _change_views(patch, change)


def _off_by_one_row(patch: Patch) -> None:
    def change(view: DraftView) -> DraftView:
        return evolve(view, target_log_probs=view.target_log_probs.roll(-1, dims=0))

    _change_views(patch, change)


def _change_views(patch: Patch, change: Callable[[DraftView], DraftView]) -> None:
    real = verify._view
    patch.setattr(verify, "_view", lambda *given: change(real(*given)))


def _bonus_without_filters(patch: Patch) -> None:
    real = verify._final_token

    def final_token(view: DraftView, policy: Policy, draws: Any, row: int) -> Tensor:
        if row < view.num_draft_tokens:
            return real(view, policy, draws, row)
        raw: Tensor = draws.rows.logits[row : row + 1].log_softmax(dim=-1)
        return draws.target_tokens(raw, row)  # type: ignore[no-any-return]

    patch.setattr(verify, "_final_token", final_token)


def _penalties_forget_drafts(patch: Patch) -> None:
    real = recipe.SeenTokens.before_rows
    patch.setattr(recipe.SeenTokens, "before_rows", lambda counts, slots, _: real(counts, slots))


def _coarse_tail(patch: Patch) -> None:
    def exponential(words: Tensor) -> Tensor:
        return -((words.double() + 0.5) * 2.0**-32).float().log().double()

    patch.setattr(core_race, "exponential", exponential)


def _short_tail(patch: Patch) -> None:
    def exponential(words: Tensor) -> Tensor:
        return -torch.log1p(-((words >> 9).double() + 0.5) * 2.0**-23)

    patch.setattr(core_race, "exponential", exponential)


def _accepts_at_zero(patch: Patch) -> None:
    def verdicts(log_thresholds: Tensor, draws: Any) -> Tensor:
        return draws.uniforms(len(log_thresholds)).log() <= log_thresholds  # type: ignore[no-any-return]

    patch.setattr(draw, "acceptance_uniform", lambda words: (words >> 9).double() * 2.0**-23)
    patch.setattr(verify, "_verdicts", verdicts)


def _uniform_reaches_one(patch: Patch) -> None:
    patch.setattr(draw, "acceptance_uniform", lambda words: ((words >> 9) + 1).double() * 2.0**-23)


def _one_uniform_per_draft(patch: Patch) -> None:
    real = draw.acceptance_uniforms

    def uniforms(seeds: Tensor, positions: Tensor, indices: Tensor) -> Tensor:
        return real(seeds, positions[:1].expand(len(seeds)), indices[:1].expand(len(seeds)))

    patch.setattr(verify, "acceptance_uniforms", uniforms)


def _last_of_ties(patch: Patch) -> None:
    def one_hot(logits: Tensor) -> Tensor:
        last = logits.shape[-1] - 1 - logits.flip(-1).argmax(dim=-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter_(1, last, 0.0)

    patch.setattr(recipe, "_one_hot_at_argmax", one_hot)


def _stops_at_the_first_failure(patch: Patch) -> None:
    patch.setattr(Block, "rule", Rule.FIRST_FAILURE)


def _block_forgets_the_product(patch: Patch) -> None:
    patch.setattr(
        Block, "log_residual", lambda _, view, row: Probabilistic().log_residual(view, row)
    )


def _without_draft_index(patch: Patch) -> None:
    keys, real = verify._Draws._keys, draw.draw

    def without_index(draws: Any, first_row: int, num_rows: int) -> tuple[Tensor, ...]:
        seeds, positions, indices = keys(draws, first_row, num_rows)
        return seeds, positions, torch.ones_like(indices)

    def drafted(
        law: Tensor, seeds: Tensor, positions: Tensor, indices: Tensor, stream: Stream
    ) -> Tensor:
        return real(law, seeds, positions, torch.ones_like(indices), stream)

    patch.setattr(verify._Draws, "_keys", without_index)
    patch.setattr(sampler, "draw", drafted)


def _keyed_by_slot(patch: Patch) -> None:
    keys = verify._Draws._keys

    def by_slot(draws: Any, first_row: int, num_rows: int) -> tuple[Tensor, ...]:
        seeds, *others = keys(draws, first_row, num_rows)
        return torch.full_like(seeds, draws.rows.request), *others

    patch.setattr(verify._Draws, "_keys", by_slot)


_PROBABILISTIC, _BLOCK = "exact law: probabilistic, {}", "exact law: block, {}"

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(name, plant, check, policy)
    for name, plant, check, policy in (
        (
            "recovered token drawn with the draft's noise",
            _recover_with(Stream.DRAFT),
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "recovered token drawn with the acceptance's noise",
            _recover_with(Stream.ACCEPT),
            _PROBABILISTIC.format("draft model"),
            None,
        ),
        (
            "block drafts with the target's noise",
            _draft_with_target_noise,
            _BLOCK.format("draft model"),
            Block(),
        ),
        (
            "one acceptance uniform for the whole draft",
            _one_uniform_per_draft,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "noise keyed without the draft index",
            _without_draft_index,
            _BLOCK.format("draft model"),
            Block(),
        ),
        ("noise keyed by slot", _keyed_by_slot, "edge: slots", None),
        (
            "residual = p",
            _residual_is_target,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "residual = p where p > q, without the − q",
            _residual_without_subtraction,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "residual as if the draft were one-hot",
            _residual_as_if_one_hot,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "accepts if u < p/q or equal to the target's sample",
            _accepts_equal_samples_too,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "raw q, processed drafts",
            _raw_draft_probs,
            _PROBABILISTIC.format("other recipe"),
            None,
        ),
        ("q left in draft ids", _draft_ids_unmapped, _PROBABILISTIC.format("mapped"), None),
        (
            "target cut to the draft's vocabulary",
            _target_cut_to_the_draft,
            _PROBABILISTIC.format("narrower"),
            None,
        ),
        (
            "target rows off by one",
            _off_by_one_row,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "bonus token without filters",
            _bonus_without_filters,
            _PROBABILISTIC.format("other recipe"),
            None,
        ),
        (
            "penalties forget the draft",
            _penalties_forget_drafts,
            _PROBABILISTIC.format("penalties"),
            None,
        ),
        (
            "block stops at the first failure",
            _stops_at_the_first_failure,
            _BLOCK.format("draft model"),
            Block(),
        ),
        (
            "block's residual without the running product",
            _block_forgets_the_product,
            _BLOCK.format("draft model"),
            Block(),
        ),
        (
            "−log u in float32 instead of −log1p(−u)",
            _coarse_tail,
            "edge: rare exponentials, V = 151,936",
            None,
        ),
        (
            "exponentials from 23 bits",
            _short_tail,
            "edge: rare exponentials, V = 151,936",
            None,
        ),
        ("u ≤ p/q with u = 0", _accepts_at_zero, "edge: lowest uniform", None),
        ("u rounds to 1", _uniform_reaches_one, "edge: highest uniform", None),
        ("last index wins a tie", _last_of_ties, "edge: ties", None),
    )
)
