"""What a decode step costs, by requests in it and tokens per draft.

Costs are measured at some of both and interpolated elsewhere: straight lines in K from K = 1 on,
where each draft token costs a forward of the draft and a row of everything else, and straight lines
between the measured batch sizes, extrapolated beyond the outer two.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np
from attrs import astuple, fields, frozen

from ...core import InvalidInputError


@frozen
class StepTimes:
    """Seconds of one step, by what they were spent on.

    Attributes:
        draft: drafting all K tokens.
        target: scoring them.
        verification: deciding.
        graph: all of these, where they are captured as one and cannot be told apart.
        host: everything else.
    """

    draft: float = 0.0
    target: float = 0.0
    verification: float = 0.0
    graph: float = 0.0
    host: float = 0.0

    @property
    def total(self) -> float:
        """All of the step."""
        return float(sum(astuple(self)))


MIN_STEPS = 5
PARTS = tuple(part.name for part in fields(StepTimes))

Key = tuple[int, int]
"""Requests in a step, and tokens of its longest draft."""

CostRow = tuple[float, ...]
"""A key, and the median seconds of each of `PARTS`."""


@frozen
class StepCosts:
    """Costs for any batch and any K; of one batch size alone, for that size.

    Attributes:
        medians: key -> the median of each part over the steps measured.

    Raises:
        InvalidInputError: nothing was measured.
    """

    medians: dict[Key, StepTimes]

    def __attrs_post_init__(self) -> None:
        if not self.medians:
            raise InvalidInputError("medians: expected a measured step, got none")

    @property
    def sizes(self) -> Sequence[int]:
        """Each num_reqs among them, rising."""
        return sorted({num_reqs for num_reqs, _ in self.medians})

    @classmethod
    def of(cls, samples: Iterable[tuple[Key, StepTimes]]) -> "StepCosts":
        """The medians, which a step that was disturbed does not move.

        What was seen fewer than `MIN_STEPS` times, such as a K that no request has room for but at
        its end, counts only where nothing else was seen.
        """
        grouped = defaultdict[Key, list[StepTimes]](list)
        for key, times in samples:
            grouped[key].append(times)
        often = {key: times for key, times in grouped.items() if len(times) >= MIN_STEPS}
        medians = {
            key: StepTimes(**{part: median(getattr(one, part) for one in times) for part in PARTS})
            for key, times in sorted((often or grouped).items())
        }
        return cls(medians)

    @classmethod
    def from_rows(cls, rows: Iterable[CostRow]) -> "StepCosts":
        """The costs whose `rows` these are."""
        medians = {(int(num_reqs), int(length)): seconds for num_reqs, length, *seconds in rows}
        return cls({key: StepTimes(*seconds) for key, seconds in medians.items()})

    @property
    def rows(self) -> tuple[CostRow, ...]:
        """The medians as plain numbers."""
        return tuple((*key, *astuple(times)) for key, times in self.medians.items())

    def times(self, num_reqs: int, num_spec_tokens: int) -> StepTimes:
        """What a step costs, part by part."""
        return StepTimes(
            **{
                part: _on_line(
                    num_reqs, {size: self._at(size, num_spec_tokens, part) for size in self.sizes}
                )
                for part in PARTS
            }
        )

    def seconds(self, num_reqs: int, num_spec_tokens: int) -> float:
        """What a step costs."""
        return self.times(num_reqs, num_spec_tokens).total

    def _at(self, num_reqs: int, num_spec_tokens: int, part: str) -> float:
        known = {
            length: getattr(times, part)
            for (size, length), times in self.medians.items()
            if size == num_reqs
        }
        drafting = {length: cost for length, cost in known.items() if length}
        # Nothing is drafted at K = 0, so it does not lie on the line of the others.
        if num_spec_tokens in known and (num_spec_tokens == 0 or len(drafting) < 2):
            return float(known[num_spec_tokens])
        if len(drafting) < 2:
            return float(max(known.values()))
        slope, offset = np.polyfit(list(drafting), list(drafting.values()), 1)
        return float(max(offset + slope * num_spec_tokens, 0.0))


def _on_line(size: int, known: dict[int, float]) -> float:
    """The cost at a size, between its neighbours, or beyond the outer two."""
    sizes, costs = list(known), list(known.values())
    if len(sizes) == 1 or sizes[0] <= size <= sizes[-1]:
        return float(np.interp(size, sizes, costs))
    (low, high), (low_cost, high_cost) = (
        (two[:2] if size < sizes[0] else two[-2:]) for two in (sizes, costs)
    )
    # More requests do not cost less: a line that falls out there is noise.
    slope = max((high_cost - low_cost) / (high - low), 0.0)
    if size > high:
        return high_cost + slope * (size - high)
    # Nor does one cost less than its share of several.
    return low_cost - min(slope, low_cost / low) * (low - size)
