"""Bugs planted on purpose in what is drawn from, compared or accepted.

Each function puts one into the reference backend or a policy until the patch is undone. How a bug
shows is in `kit.proof.mutants`.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.reference import draw, request, statistics, thresholds, verify
from acceptor.core import Block, DraftView, Policy, Probabilistic, Rule, Strict

Patch = pytest.MonkeyPatch


def residual_is_target(patch: Patch) -> None:
    patch.setattr(
        Probabilistic, "log_residual", lambda _, view, row: view.target_log_probs[row].clone()
    )


def residual_without_subtraction(patch: Patch) -> None:
    def log_residual(_: object, view: DraftView, row: int) -> Tensor:
        assert view.draft_log_probs is not None
        log_p, log_q = view.target_log_probs[row], view.draft_log_probs[row]
        return torch.where(log_p > log_q, log_p, -torch.inf)

    patch.setattr(Probabilistic, "log_residual", log_residual)


def residual_as_if_one_hot(patch: Patch) -> None:
    def log_residual(_: object, view: DraftView, row: int) -> Tensor:
        return view.target_log_probs[row].index_fill(0, view.draft_token_ids[row], -torch.inf)

    patch.setattr(Probabilistic, "log_residual", log_residual)


def accepts_equal_samples_too(patch: Patch) -> None:
    thresholds = Probabilistic.log_thresholds

    def log_thresholds(policy: Probabilistic, view: DraftView) -> Tensor:
        return torch.maximum(thresholds(policy, view), Strict().log_thresholds(view))

    patch.setattr(Probabilistic, "log_thresholds", log_thresholds)
    patch.setattr(Probabilistic, "uses_target_samples", True)


def raw_draft_probs(patch: Patch) -> None:
    patch.setattr(request, "log_probs", lambda logits, *_: logits.log_softmax(dim=-1))


def draft_ids_unmapped(patch: Patch) -> None:
    real = request.in_target_ids
    patch.setattr(request, "in_target_ids", lambda law, size, _: real(law, size, None))


def target_cut_to_the_draft(patch: Patch) -> None:
    def change(view: DraftView) -> DraftView:
        if view.draft_log_probs is None or view.num_draft_tokens == 0:
            return view
        known = view.draft_log_probs[0] > -torch.inf
        cut = view.target_log_probs.masked_fill(~known, -torch.inf).log_softmax(dim=-1)
        return evolve(view, target_log_probs=cut)

    _change_views(patch, change)


def off_by_one_row(patch: Patch) -> None:
    def change(view: DraftView) -> DraftView:
        return evolve(view, target_log_probs=view.target_log_probs.roll(-1, dims=0))

    _change_views(patch, change)


def _change_views(patch: Patch, change: Callable[[DraftView], DraftView]) -> None:
    real = verify._view
    patch.setattr(verify, "_view", lambda *given: change(real(*given)))


def bonus_without_filters(patch: Patch) -> None:
    real = draw.final_token

    def final_token(view: DraftView, policy: Policy, draws: Any, row: int) -> Tensor:
        if row < view.num_draft_tokens:
            return real(view, policy, draws, row)
        raw: Tensor = draws.rows.logits[row : row + 1].log_softmax(dim=-1)
        return draws.target_tokens(raw, row)  # type: ignore[no-any-return]

    patch.setattr(verify, "final_token", final_token)


def penalties_forget_drafts(patch: Patch) -> None:
    real = statistics.SeenTokens.before_rows
    patch.setattr(
        statistics.SeenTokens, "before_rows", lambda counts, slots, _: real(counts, slots)
    )


def last_of_ties(patch: Patch) -> None:
    def one_hot(logits: Tensor) -> Tensor:
        last = logits.shape[-1] - 1 - logits.flip(-1).argmax(dim=-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter_(1, last, 0.0)

    patch.setattr(thresholds, "_one_hot_at_argmax", one_hot)


def stops_at_the_first_failure(patch: Patch) -> None:
    patch.setattr(Block, "rule", Rule.FIRST_FAILURE)


def block_forgets_the_product(patch: Patch) -> None:
    patch.setattr(
        Block, "log_residual", lambda _, view, row: Probabilistic().log_residual(view, row)
    )
