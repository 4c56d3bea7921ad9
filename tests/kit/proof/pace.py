"""Long draws in batches, until all is drawn or the time is up, with reports of progress."""

import time
from collections.abc import Callable, Iterator

from attrs import define, field

SECONDS_BETWEEN_LINES = 5.0


def _say_nothing(_: str) -> None:
    pass


@define
class Pace:
    """How fast it goes, and when it ends.

    Attributes:
        seconds: after so many, counted from now, whatever is drawn ends with its first batch;
            None if it may take long.
        say: is told how far it is.
        clock: seconds since some time.
    """

    seconds: float | None = None
    say: Callable[[str], None] = _say_nothing
    clock: Callable[[], float] = time.monotonic
    _start: float = field(init=False)
    _told: float = field(default=0.0, init=False)

    @_start.default
    def _now(self) -> float:
        return self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds until now."""
        return self._now() - self._start

    def batches(self, total: int, size: int, what: str) -> Iterator[tuple[int, int]]:
        """First number and length of one batch after the other."""
        for begin in range(0, total, size):
            if begin and self.seconds is not None and self.elapsed >= self.seconds:
                self.say(f"{what}: {begin:,} of {total:,}, the time is up")
                return
            yield begin, min(size, total - begin)
            if self.elapsed - self._told >= SECONDS_BETWEEN_LINES:
                self._told = self.elapsed
                self.say(f"{what}: {min(begin + size, total):,} of {total:,}")


UNHURRIED = Pace()
"""Says nothing and takes its time."""
