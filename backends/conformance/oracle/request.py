"""Verifies one request a second time: what it must emit, and what rounding may make it emit."""

from functools import cached_property

import numpy as np
from attrs import evolve, field, frozen

from ....core import Policy, Recipe, Status, Strict
from .filters import Possible
from .law import TOLERANCE, RowLogprobs, law_of
from .policies import PolicyRule, rule_of
from .race import RECOVER, Draw
from .view import RequestView


@frozen
class RequestOracle:
    """What the contract says about one request.

    Attributes:
        given: what the models said.
        asked: the policy of the batch; at temperature 0 most are strict.
    """

    given: RequestView = field(eq=False)
    asked: Policy

    @cached_property
    def policy(self) -> Policy:
        """The policy that decides."""
        greedy = self.given.recipe.temperature == 0
        return Strict() if greedy and not rule_of(self.asked).stays_when_greedy else self.asked

    @property
    def rule(self) -> PolicyRule:
        """The contract's rule for that policy."""
        return rule_of(self.policy)

    @cached_property
    def view(self) -> RequestView:
        """What the policy looks at."""
        return self.given if self.rule.uses_draft_law else evolve(self.given, draft_logits=None)

    @property
    def num_draft_tokens(self) -> int:
        """How many draft tokens can be verified."""
        return len(self.view.drafts)

    def verdict(self, row: int, tolerance: float = 0.0) -> Possible:
        """The possible results of a draft token's own test, given a tolerance."""
        allowed = self.view.allowed[row]
        if allowed is not None and not allowed[self.view.drafts[row]]:
            return Possible.of(exact=False)
        return self.rule.verdict(self.view, self.policy, row, tolerance)

    @cached_property
    def num_accepted(self) -> int:
        """How many draft tokens are accepted."""
        rows = range(self.num_draft_tokens)
        if self.rule.takes_last_success:
            return max((row + 1 for row in rows if self.verdict(row).accept), default=0)
        failures = (row for row in rows if not self.verdict(row).accept)
        return next(failures, self.num_draft_tokens)

    def may_accept(self, count: int, tolerance: float) -> bool:
        """Whether a relative change of p and q could make `num_accepted` exactly this many."""
        possible = [self.verdict(row, tolerance) for row in range(self.num_draft_tokens)]
        if self.rule.takes_last_success:
            passed = count == 0 or possible[count - 1].accept
            return passed and all(each.reject for each in possible[count:])
        passed = all(each.accept for each in possible[:count])
        return passed and all(each.reject for each in possible[count : count + 1])

    @cached_property
    def finals(self) -> list[Draw | None]:
        """The recovered or bonus token for each number of accepted ones; None if stopped."""
        view, residual = self.view, self.rule.residual
        *recovered, bonus = view.samples
        if residual is not None:
            rows = range(self.num_draft_tokens)
            recovered = [view.draw(residual(view, row), RECOVER, row) for row in rows]
        return [*recovered, bonus if view.stop is Status.OK else None]

    def status(self, num_accepted: int) -> Status:
        """The status: bad ids are always reported, a bad row only if it was needed."""
        stopped = self.finals[num_accepted] is None
        return self.view.id_status | (self.view.stop if stopped else Status.OK)

    @property
    def num_decisions(self) -> int:
        """The number of tests and race levels on the path; a strict test is its row's race."""
        final, last = self.finals[self.num_accepted], self.num_draft_tokens
        num_tests = last if self.rule.takes_last_success else min(self.num_accepted + 1, last)
        if isinstance(self.policy, Strict):
            num_tests = sum(self.view.samples[row].num_races for row in range(num_tests))
        return num_tests + (0 if final is None else final.num_races)

    def row_logprobs(self, row: int) -> RowLogprobs:
        """The logprobs of the row that decides a place of the output, raw or processed.

        At temperature 0 processed ones are those of adjusted logits.
        """
        given, processed = self.given, self.given.logprobs_processed
        logits = self.view.target_rows[row] if processed else given.target_logits[row]
        law = law_of(logits, given.recipe if processed and not given.recipe.is_greedy else Recipe())
        return RowLogprobs(law.log_p, law.doubted(), logits)

    def total_variation(self, row: int) -> tuple[float, float]:
        """The total variation between p and the emitted token's law q a + p (1 - sum(q a)).

        The second number is how far off a backend may be, as rounding decides what is kept.
        """
        if row >= self.num_draft_tokens or self.rule.accepted is None:
            return 0.0, 0.0
        p, q = self.view.target_laws[row], self.view.draft_laws[row]
        allowed = self.view.allowed[row]
        exact, rounded = (
            self.rule.accepted(self.view, self.policy, row, tolerance)
            & Possible.of(True if allowed is None else allowed)
            for tolerance in (0.0, TOLERANCE)
        )
        survived = np.exp(q.log_p) * exact.accept
        caused = abs(survived - np.exp(p.log_p) * survived.sum()).sum() / 2
        doubted = np.exp(q.log_p[rounded.doubted]).sum()
        return float(caused), 2 * (p.doubted_mass() + q.doubted_mass()) + float(doubted)
