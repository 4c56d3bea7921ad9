"""K chosen anew in each step, from what became of each request's own drafts.

A step costs what its longest draft costs, so the requests of a step share one K: that which brings
the most tokens per second, counting what each of them is likely to accept. Off unless asked for:
under policies other than strict a request's tokens depend on its K, and so on its neighbours. This
module refuses to touch the models; see `acceptor.app.engine.runner`.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from operator import mul
from weakref import WeakKeyDictionary

from attrs import define, field

from ...core.token_counts import TokenCounts
from ..engine.runner import Runner
from ..frontier import Running
from ..request_state import RequestState, Verdict
from .costs import StepCosts
from .goodput import Goodput
from .profile import AcceptanceProfile

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
        for place in range(min(num_accepted + 1, num_draft_tokens)):
            self.offered[place] += 1
            self.accepted[place] += place < num_accepted

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


@define(eq=False, kw_only=True)
class AdaptiveRunner:
    """A `Runner` that shortens drafts before another one runs the step.

    Attributes:
        runner: runs the step.
        costs: of its steps.
        profile: how far drafts are accepted before anything is known of a request.
        max_spec_tokens: the largest K.
    """

    runner: Runner
    costs: StepCosts
    profile: AcceptanceProfile
    max_spec_tokens: int
    _records: WeakKeyDictionary[RequestState, DraftRecord] = field(
        factory=WeakKeyDictionary, init=False
    )
    _seconds: dict[int, list[float]] = field(factory=dict, init=False)

    @classmethod
    def of(cls, runner: Runner, model: Goodput, max_spec_tokens: int) -> "AdaptiveRunner":
        """One that goes by a measured run."""
        return cls(
            runner=runner,
            costs=model.costs,
            profile=model.profile,
            max_spec_tokens=max_spec_tokens,
        )

    def gather(self, states: Sequence[RequestState]) -> Running:
        """See `Runner.gather`."""
        return self.runner.gather(states)

    def run(
        self, running: Running, rooms: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """See `Runner.run`."""
        num_spec_tokens = self.choose(running.states, rooms)
        shorter = [min(room, num_spec_tokens) for room in rooms]
        verdicts = self.runner.run(running, shorter, token_counts)
        for state, verdict in zip(running.states, verdicts, strict=True):
            self._record(state).observe(verdict.num_draft_tokens, verdict.num_accepted)
        return verdicts

    def choose(self, states: Sequence[RequestState], rooms: Sequence[int]) -> int:
        """The K that promises the most tokens per second in this step."""
        longest = min(max(rooms), self.max_spec_tokens)
        seconds = self._step_seconds(len(states))
        gain, best, best_rate = float(len(states)), 0, len(states) / seconds[0]
        reaches = zip(*self._reaches(states, rooms), strict=True)
        for length, reach in enumerate(islice(reaches, longest), 1):
            gain += sum(reach)
            if gain / seconds[length] > best_rate:
                best, best_rate = length, gain / seconds[length]
        return best

    def _reaches(
        self, states: Sequence[RequestState], rooms: Sequence[int]
    ) -> Iterator[list[float]]:
        """For each request the chances that a draft is accepted through each place."""
        for state, room in zip(states, rooms, strict=True):
            chances = list(self._record(state).chances(self.profile))
            # Behind its room there is no draft.
            yield list(accumulate([*chances[:room], *(0.0 for _ in chances[room:])], mul))

    def _record(self, state: RequestState) -> DraftRecord:
        if state not in self._records:
            empty = [0.0] * self.max_spec_tokens
            self._records[state] = DraftRecord(empty, empty)
        return self._records[state]

    def _step_seconds(self, num_reqs: int) -> list[float]:
        if num_reqs not in self._seconds:
            self._seconds[num_reqs] = [
                self.costs.seconds(num_reqs, length) for length in range(self.max_spec_tokens + 1)
            ]
        return self._seconds[num_reqs]
