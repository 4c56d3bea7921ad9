"""The costs of a decode step, by its requests and its tokens per draft.

Costs are measured at some values of both and interpolated elsewhere: linearly in K from K = 1 on,
where each draft token costs a forward of the draft and a row of everything else, and linearly
between the measured batch sizes, with extrapolation beyond the outer two.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from attrs import astuple, fields, frozen
from numpy.typing import NDArray

from ...core import InvalidInputError


@frozen
class StepTimes:
    """The seconds of one step, part by part.

    Attributes:
        draft: drafting all K tokens.
        target: scoring them.
        verification: deciding.
        graph: all of these, if they are captured as one graph and cannot be timed separately.
        host: everything else.
    """

    draft: float = 0.0
    target: float = 0.0
    verification: float = 0.0
    graph: float = 0.0
    host: float = 0.0

    @property
    def total(self) -> float:
        """The seconds of the whole step."""
        return float(sum(astuple(self)))


MIN_STEPS = 5
PARTS = tuple(part.name for part in fields(StepTimes))

Floats = NDArray[np.float64]
Key = tuple[int, int]
"""Requests in a step, and tokens of its longest draft."""

CostRow = tuple[float, ...]
"""A key, and the median seconds of each of `PARTS`."""


@frozen
class StepCosts:
    """The costs for any batch and any K; if one batch size was measured, for that size alone.

    Attributes:
        medians: key -> the median of each part over the measured steps.

    Raises:
        InvalidInputError: nothing was measured.
    """

    medians: dict[Key, StepTimes]

    def __attrs_post_init__(self) -> None:
        if not self.medians:
            raise InvalidInputError("medians: expected a measured step, got none")

    @classmethod
    def of(cls, samples: Iterable[tuple[Key, StepTimes]]) -> "StepCosts":
        """Take medians, which a single disturbed step does not move.

        A key with few steps, such as a K that only the end of a request has, does not count.
        """
        grouped = defaultdict[Key, list[StepTimes]](list)
        for key, times in samples:
            grouped[key].append(times)
        enough = min(MIN_STEPS, max(map(len, grouped.values()), default=0) / 2)
        medians = {
            key: StepTimes(*np.median([astuple(one) for one in times], axis=0).tolist())
            for key, times in sorted(grouped.items())
            if len(times) >= enough
        }
        return cls(medians)

    @property
    def rows(self) -> tuple[CostRow, ...]:
        """The medians as plain numbers."""
        return tuple((*key, *astuple(times)) for key, times in self.medians.items())

    def times(self, num_reqs: int, num_spec_tokens: int) -> StepTimes:
        """The cost of a step, part by part."""
        sizes = sorted({size for size, _ in self.medians})
        costs = [self._at(size, num_spec_tokens) for size in sizes]
        return StepTimes(*_on_line(num_reqs, sizes, costs).tolist())

    def seconds(self, num_reqs: int, num_spec_tokens: int) -> float:
        """The cost of a step in seconds."""
        return self.times(num_reqs, num_spec_tokens).total

    def _at(self, num_reqs: int, num_spec_tokens: int) -> Floats:
        """Each of `PARTS` for one of the measured sizes."""
        here = [(k, times) for (size, k), times in self.medians.items() if size == num_reqs]
        known = {length: np.array(astuple(times)) for length, times in here}
        drafting = {length: cost for length, cost in known.items() if length}
        # Nothing is drafted at K = 0, so it is not on the line of the others.
        if len(drafting) < 2 or (num_spec_tokens == 0 and 0 in known):
            return known.get(num_spec_tokens, known[max(known)])
        line = np.polyfit([*drafting], [*drafting.values()], 1)
        return np.polyval(line, num_spec_tokens).clip(0.0)


def _on_line(size: int, sizes: Sequence[int], costs: Sequence[Floats]) -> Floats:
    """The costs at a size, between its neighbours, or beyond the outer two."""
    if len(sizes) == 1:
        return costs[0]
    known, beyond = np.array(costs), max(size, sizes[-1]) + 1
    slopes = np.diff(known, axis=0) / np.diff(sizes)[:, None]
    # More requests do not cost less: a falling line is noise. Nor does one request cost less than
    # its share of several.
    none = known[0] - sizes[0] * slopes[0].clip(0.0, known[0] / sizes[0])
    more = known[-1] + (beyond - sizes[-1]) * slopes[-1].clip(0.0)
    parts = np.vstack((none, known, more)).T
    return np.array([np.interp(size, [0, *sizes, beyond], part) for part in parts])
