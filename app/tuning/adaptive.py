"""K of every request chosen anew in each step, from the fate of its own drafts.

Drafting and scoring run as long as a step's longest draft; each further draft token of a request
costs its verification. The choice maximises tokens per second. It depends on past steps and on
costs, never on a draft that is still to be verified, so the output keeps the policy's law. Under
policies other than strict a request's tokens depend on its K, and so on its neighbours, which is
why adaptive K is off by default.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from operator import mul
from weakref import WeakKeyDictionary

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from ...core.policies.parameters import derived
from ..engine.runner import Runner
from ..frontier import Running
from ..request_state import RequestState, Verdict
from .costs import StepCosts
from .profile import AcceptanceProfile, outcomes

PRIOR_DRAFTS = 4.0
"""How many drafts of its own a request needs to count as much as the profile."""

MEMORY = 0.97
"""How much of a request's own record is left after a step: texts change, and a K of 0, under which
nothing is learned, must not last for ever."""


@define
class DraftRecord:
    """What one request's drafts have shown so far; the counts fade.

    Attributes:
        offered: for each place, how many drafts came so far.
        accepted: of those, how many were accepted there.
    """

    offered: list[float]
    accepted: list[float]

    def observe(self, num_draft_tokens: int, num_accepted: int) -> None:
        """Count a draft and forget a little."""
        self.offered = [MEMORY * count for count in self.offered]
        self.accepted = [MEMORY * count for count in self.accepted]
        for place, is_accepted in outcomes(num_draft_tokens, num_accepted):
            self.offered[place] += 1
            self.accepted[place] += is_accepted

    def chances(self, profile: AcceptanceProfile) -> Iterator[float]:
        """Of each place in turn, given that all before it were accepted.

        What is seen at one place also moves what is believed of the next: a request that does
        better than the profile where it was looked at is taken to do so further on.
        """
        lift = 1.0
        for place, (offered, accepted) in enumerate(zip(self.offered, self.accepted, strict=True)):
            usual = profile.chance(place)
            believed = min(lift * usual, 1.0)
            chance = (PRIOR_DRAFTS * believed + accepted) / (PRIOR_DRAFTS + offered)
            lift = chance / usual if usual > 0 else 1.0
            yield chance


Prices = tuple[NDArray[np.float64], float]
"""Seconds of a step by the length of its longest draft, from 0 on, and on top for each draft token
of each request."""

Offer = tuple[float, int, int]
"""The chance that a draft token is accepted, minus its place, its request: the best is largest."""


@define(eq=False, kw_only=True)
class AdaptiveRunner(Runner):
    """A `Runner` that shortens drafts before another one runs the step.

    Attributes:
        profile: how far drafts are accepted before anything is known of a request.
        max_spec_tokens: the largest K, above 0.
    """

    runner: Runner
    costs: StepCosts
    profile: AcceptanceProfile
    max_spec_tokens: int
    _records: WeakKeyDictionary[RequestState, DraftRecord] = field(
        factory=WeakKeyDictionary, init=False
    )
    _prices_of: Callable[[int], Prices] = derived(lambda self: cache(self._prices))

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        """See `Runner.run`."""
        verdicts = self.runner.run(running, self.choose(running.states, draft_limits))
        for state, verdict in zip(running.states, verdicts, strict=True):
            self._record(state).observe(verdict.num_draft_tokens, verdict.num_accepted)
        return verdicts

    def choose(self, states: Sequence[RequestState], draft_limits: Sequence[int]) -> list[int]:
        """For each request the K that promises the most tokens per second of this step."""
        (shared, token), num_reqs = self._prices_of(len(states)), len(states)
        # Most likely tokens first; a request's own are in order, since each needs those before it.
        offers = [(0.0, 0, 0), *sorted(self._offers(states, draft_limits), reverse=True)]
        reaches, ahead, requests = map(np.array, zip(*offers, strict=True))
        # Of drafts up to each length, the first so many offers that fit are taken.
        longest = np.arange(1 - ahead.min())
        fits = -ahead <= longest[:, None]
        tokens = num_reqs + np.cumsum(fits * reaches, axis=1)
        seconds = shared[longest, None] + token * (np.cumsum(fits, axis=1) - 1)
        row, last = np.unravel_index((tokens / seconds).argmax(), fits.shape)
        taken = requests[1 : last + 1][fits[row, 1 : last + 1]]
        lengths: list[int] = np.bincount(taken, minlength=num_reqs).tolist()
        return lengths

    def _prices(self, num_reqs: int) -> Prices:
        """Taken apart from steps in which all drafts were of one length."""
        longest, first = self.max_spec_tokens, int(self.max_spec_tokens > 1)
        few, all_of = (self.costs.times(num_reqs, k).verification for k in (first, longest))
        token = max(all_of - few, 0.0) / (num_reqs * (longest - first))
        lengths = np.arange(longest + 1)
        seconds = np.array([self.costs.seconds(num_reqs, int(k)) for k in lengths])
        return seconds - token * num_reqs * lengths, token

    def _offers(self, states: Sequence[RequestState], limits: Sequence[int]) -> Iterator[Offer]:
        for request, (state, limit) in enumerate(zip(states, limits, strict=True)):
            chances = self._record(state).chances(self.profile)
            for place, reach in zip(range(1, limit + 1), accumulate(chances, mul), strict=False):
                yield reach, -place, request

    def _record(self, state: RequestState) -> DraftRecord:
        nothing = [0.0] * self.max_spec_tokens
        return self._records.setdefault(state, DraftRecord(nothing, nothing))
