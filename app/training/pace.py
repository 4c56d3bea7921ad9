"""How far training has come: by steps, and by the clock where time is limited.

Learning rates follow the progress, so a run that the clock ends has annealed by then, too. This
module refuses to know what a step learns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from time import perf_counter

from attrs import define, field, frozen

EVALUATIONS = 12
"""At least so many within a time limit, however few the steps are."""

_WARM_UP = 0.05
_LEAST_RATE = 0.05


@frozen
class Budget:
    """Wall time for a part of a run; the part begins when this is made.

    Attributes:
        seconds: None for as long as the steps take.
        clock: seconds so far.
    """

    seconds: float | None = None
    clock: Callable[[], float] = perf_counter
    _began: float = field(init=False)

    @_began.default
    def _now(self) -> float:
        return self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self.clock() - self._began

    @property
    def share(self) -> float:
        """How much of it is over; 0 without a limit."""
        if self.seconds is None:
            return 0.0
        return self.elapsed / self.seconds if self.seconds else 1.0

    def part(self, share: float) -> Budget:
        """What is left until this share of it is over."""
        if self.seconds is None:
            return Budget(None, self.clock)
        return Budget(max(share * self.seconds - self.elapsed, 0.0), self.clock)


@define
class Pace:
    """Iterates over the progress in [0, 1] before each step; there is always a first one.

    Attributes:
        num_steps: after which it ends.
        evaluate_every: steps.
        budget: with which it ends, too.
        step: how many have begun.
    """

    num_steps: int
    evaluate_every: int
    budget: Budget
    step: int = field(default=0, init=False)
    _evaluated_step: int = field(default=0, init=False)
    _evaluated_share: float = field(default=0.0, init=False)

    def __iter__(self) -> Iterator[float]:
        while self.step == 0 or self._progress < 1:
            progress = min(self._progress, 1.0)
            self.step += 1
            yield progress

    def is_due(self) -> bool:
        """Whether to evaluate after this step."""
        is_late = self.budget.share - self._evaluated_share >= 1 / EVALUATIONS
        return is_late or self.step - self._evaluated_step >= self.evaluate_every

    def note_evaluation(self) -> None:
        """Count from here to the next one, so that most of a budget is for training."""
        self._evaluated_step, self._evaluated_share = self.step, self.budget.share

    def is_last_due(self) -> bool:
        """Whether to evaluate at the end: nothing was yet, or the clock chose the last step."""
        is_missing = self._evaluated_step < self.step
        return is_missing and (self.budget.seconds is not None or self._evaluated_step == 0)

    @property
    def _progress(self) -> float:
        return max(self.step / self.num_steps, self.budget.share)


def rate_share(progress: float) -> float:
    """The learning rate at this progress: a straight warm-up, then a cosine to a twentieth."""
    if progress < _WARM_UP:
        return progress / _WARM_UP
    fallen = (1 - math.cos(math.pi * (progress - _WARM_UP) / (1 - _WARM_UP))) / 2
    return 1 - (1 - _LEAST_RATE) * fallen
