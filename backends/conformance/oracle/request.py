"""One request verified once more: what it must emit, and what else rounding could make it emit."""

from functools import cached_property

import numpy as np
from attrs import field, frozen

from ....core.output import Status
from ....core.policies import Fly, Policy, RelaxedTopN, Strict, Synthetic, Typical
from .inputs import RequestInputs
from .law import TOLERANCE
from .logprobs import RowLogprobs
from .noise import RECOVER
from .policies import (
    accepted_tokens,
    forgiven,
    residual_of,
    takes_last_success,
    total_variation,
    uses_draft_law,
    verdict_of,
)
from .race import Draw, PerRow
from .verdict import Verdict
from .view import RequestView


@frozen
class RequestOracle:
    """What the contract says about one request.

    Attributes:
        inputs: what the models said.
        asked: the policy of the batch; at temperature 0 all but the synthetic one are strict.
    """

    inputs: RequestInputs = field(eq=False)
    asked: Policy

    @cached_property
    def policy(self) -> Policy:
        """The policy that decides."""
        greedy = self.inputs.recipe.temperature == 0
        return Strict() if greedy and not isinstance(self.asked, Synthetic) else self.asked

    @property
    def is_strict(self) -> bool:
        """Whether draft tokens are held against the target's own samples."""
        return isinstance(self.policy, Strict)

    @cached_property
    def view(self) -> RequestView:
        """The part that can be verified."""
        return RequestView(self.inputs, uses_draft_law(self.policy))

    @property
    def num_draft_tokens(self) -> int:
        """How many draft tokens can be verified."""
        return len(self.view.drafts)

    @cached_property
    def verdicts(self) -> PerRow[Verdict]:
        """Each draft token's own test."""
        return PerRow(lambda row: verdict_of(self.view, self.policy, row))

    @cached_property
    def num_accepted(self) -> int:
        """Without the final token."""
        rows = range(self.num_draft_tokens)
        if takes_last_success(self.policy):
            return max((row + 1 for row in rows if self.verdicts[row].accepted), default=0)
        failures = (row for row in rows if not self.verdicts[row].accepted)
        return next(failures, self.num_draft_tokens)

    @cached_property
    def finals(self) -> PerRow[Draw | None]:
        """The recovered or bonus token, by the number of accepted ones; None if stopped."""
        return PerRow(self._final)

    def _final(self, num_accepted: int) -> Draw | None:
        if num_accepted == self.num_draft_tokens:
            return self.view.samples[num_accepted] if self.view.stop is Status.OK else None
        left = residual_of(self.view, self.policy, num_accepted)
        if left is None:
            return self.view.samples[num_accepted]
        return self.view.draw(left, RECOVER, num_accepted)

    def status(self, num_accepted: int) -> Status:
        """Bad ids are always told, a bad row only if it was needed."""
        stopped = self.finals[num_accepted] is None
        return self.view.id_status | (self.view.stop if stopped else Status.OK)

    @property
    def num_tested(self) -> int:
        """How many draft tokens' tests decide."""
        last = self.num_draft_tokens
        return last if takes_last_success(self.policy) else min(self.num_accepted + 1, last)

    @property
    def num_decisions(self) -> int:
        """Tests of draft tokens and levels of races; a strict test is its row's race."""
        final, tested = self.finals[self.num_accepted], range(self.num_tested)
        tests = [self.view.samples[row].num_races if self.is_strict else 1 for row in tested]
        return sum(tests) + (0 if final is None else final.num_races)

    def row_logprobs(self, row: int, *, processed: bool) -> RowLogprobs:
        """Logprobs of the row that decides a place."""
        raw, adjusted = self.inputs.target_logits[row], self.view.target_rows[row]
        return RowLogprobs.of(raw, adjusted, self.inputs.recipe, processed=processed)

    def total_variation(self, row: int) -> float:
        """What a lossy policy caused at a decided row."""
        if row >= self.num_draft_tokens:
            return 0.0
        match self.policy:
            case Typical() | RelaxedTopN():
                accepted = accepted_tokens(self.view, self.policy, row).exact
            case Fly():
                everything = forgiven(self.view, self.policy, row).accepted
                accepted = np.full(self.inputs.vocab_size, everything)
            case _:
                return 0.0
        return total_variation(self.view.target_laws[row], self.view.draft_laws[row], accepted)

    def total_variation_width(self, row: int) -> float:
        """How far off a backend may be because rounding decides what is accepted or kept."""
        p, q = self.view.target_laws[row], self.view.draft_laws[row]
        width = 2 * (p.doubted_mass + q.doubted_mass)
        if isinstance(self.policy, Typical | RelaxedTopN):
            doubted = accepted_tokens(self.view, self.policy, row).doubted(TOLERANCE)
            return width + float(np.exp(q.log_p[doubted]).sum())
        if isinstance(self.policy, Fly):
            possible = forgiven(self.view, self.policy, row).possible(TOLERANCE)
            return width + float(possible.accept and possible.reject)
        return 0.0
