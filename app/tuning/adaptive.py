"""Chooses every request's K anew in each step, by how its own drafts were accepted.

Drafting and scoring run as long as a step's longest draft; each further draft token of a request
costs its verification. The choice maximises tokens per second. It depends on past steps and on
costs, never on a draft that is still to be verified, so the output keeps the policy's law. Under
policies other than strict a request's tokens depend on its K, and so on its neighbours, which is
why adaptive K is off by default.
"""

from collections.abc import Callable, Sequence
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
from attrs import define, field

from ...core.policies.parameters import derived
from ..engine.runner import Runner
from ..frontier import Running
from ..request_state import RequestState
from ..verdicts import Verdict
from .costs import Floats, StepCosts
from .profile import AcceptanceProfile

PRIOR_DRAFTS = 4.0
"""With this many own drafts, a request's record weighs as much as the profile."""

MEMORY = 0.97
"""The share of a request's record that remains after a step: texts change, and a K of 0, from which
nothing is learned, must not last forever."""

Prices = tuple[Floats, float]
"""Seconds of a step by the length of its longest draft, from 0 on; and the seconds that each draft
token of a request adds."""


@define(eq=False, kw_only=True)
class AdaptiveRunner(Runner):
    """A `Runner` that shortens drafts before another one runs the step.

    Attributes:
        profile: how far drafts are accepted, before a request has its own record.
        max_spec_tokens: the largest K, above 0.
    """

    runner: Runner
    costs: StepCosts
    profile: AcceptanceProfile
    max_spec_tokens: int
    _records: WeakKeyDictionary[RequestState, Floats] = field(factory=WeakKeyDictionary, init=False)
    _prices_of: Callable[[int], Prices] = derived(lambda self: cache(self._prices))

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        """See `Runner.run`."""
        verdicts = self.runner.run(running, self.choose(running.states, draft_limits))
        for state, verdict in zip(running.states, verdicts, strict=True):
            self.observe(state, verdict.num_draft_tokens, verdict.num_accepted)
        return verdicts

    def observe(self, state: RequestState, num_draft_tokens: int, num_accepted: int) -> None:
        """Count a request's draft; older ones lose some weight."""
        record = self._record(state)
        record *= MEMORY
        offered, accepted = record
        offered[: min(num_accepted + 1, num_draft_tokens)] += 1
        accepted[:num_accepted] += 1

    def choose(self, states: Sequence[RequestState], draft_limits: Sequence[int]) -> list[int]:
        """For each request the K with the most expected tokens per second in this step."""
        (shared, token), num_reqs = self._prices_of(len(states)), len(states)
        reaches = np.cumprod(self._chances(states), axis=0)
        is_of_use = np.arange(self.max_spec_tokens)[:, None] < draft_limits
        # Most likely tokens first; a request's own are in order, since each needs those before it.
        offers = np.argsort(-reaches, axis=None, kind="stable")
        offers = offers[is_of_use.flat[offers]]
        # For each longest length, take the best offers within it, or none.
        fits = offers // num_reqs < np.arange(self.max_spec_tokens + 1)[:, None]
        tokens = num_reqs + np.cumsum(fits * reaches.flat[offers], axis=1)
        seconds = shared[:, None] + token * np.cumsum(fits, axis=1)
        rates = np.insert(tokens / seconds, 0, num_reqs / shared, axis=1)
        row, num_seen = np.unravel_index(rates.argmax(), rates.shape)
        taken = offers[:num_seen][fits[row, :num_seen]] % num_reqs
        lengths: list[int] = np.bincount(taken, minlength=num_reqs).tolist()
        return lengths

    def _chances(self, states: Sequence[RequestState]) -> list[Floats]:
        """The chance of each place, given that all before it were accepted: [num_reqs] each.

        The record of one place also changes the estimate of the next: a request that does better
        than the profile at its counted places is assumed to do so at later ones.
        """
        offered, accepted = np.stack([*map(self._record, states)], axis=-1)
        lift, chances = np.ones(len(states)), list[Floats]()
        for place in range(self.max_spec_tokens):
            usual = self.profile.chance(place)
            believed = PRIOR_DRAFTS * np.minimum(lift * usual, 1.0)
            chances.append((believed + accepted[place]) / (PRIOR_DRAFTS + offered[place]))
            lift = chances[-1] / usual if usual > 0 else np.ones(len(states))
        return chances

    def _prices(self, num_reqs: int) -> Prices:
        """The two prices, separated from steps in which all drafts had one length."""
        longest, first = self.max_spec_tokens, int(self.max_spec_tokens > 1)
        few, all_of = (self.costs.times(num_reqs, k).verification for k in (first, longest))
        token = max(all_of - few, 0.0) / (num_reqs * (longest - first))
        lengths = np.arange(longest + 1)
        seconds = np.array([self.costs.seconds(num_reqs, int(k)) for k in lengths])
        return seconds - token * num_reqs * lengths, token

    def _record(self, state: RequestState) -> Floats:
        """[2, K], how many drafts reached each place and were accepted there; the counts decay."""
        return self._records.setdefault(state, np.zeros((2, self.max_spec_tokens)))
