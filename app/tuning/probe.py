"""A runner that times the parts of each step, and draws a K for each.

One run so shows what steps cost at several K, and how far drafts are accepted. This module refuses
to be used where speed counts: it waits for the device between the parts.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import numpy as np
import torch
from attrs import define, field, frozen

from ...core.token_counts import TokenCounts
from ..decode import DecodeStep
from ..frontier import Frontier, Running
from ..request_state import RequestState, Verdict
from ..verdicts import pack, read_verdicts


@define(eq=False)
class Stopwatch:
    """Adds up seconds by name.

    Attributes:
        device: waited for before each reading.
        seconds: name -> what it took since `reset`.
    """

    device: torch.device
    seconds: dict[str, float] = field(factory=lambda: defaultdict(float))

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Count what happens inside."""
        began = self._now()
        yield
        self.seconds[name] += self._now() - began

    def reset(self) -> None:
        """Begin at zero."""
        self.seconds.clear()

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return perf_counter()


@frozen(kw_only=True)
class ProbedStep:
    """What a probe saw of one step.

    Attributes:
        num_reqs: requests in it.
        num_spec_tokens: tokens of the longest draft.
        draft, target, verification: seconds.
    """

    num_reqs: int
    num_spec_tokens: int
    draft: float
    target: float
    verification: float


@define(eq=False)
class Probe:
    """A `Runner` that looks.

    Attributes:
        lengths: the K of a step is one of these.
        last: what was seen of the last step, until it is taken.
        drafts: (num_draft_tokens, num_accepted) of every draft.
    """

    lengths: Sequence[int]
    _step: DecodeStep
    _stopwatch: Stopwatch
    _generator: np.random.Generator
    last: ProbedStep | None = field(default=None, init=False)
    drafts: list[tuple[int, int]] = field(factory=list, init=False)

    @classmethod
    def of(cls, step: DecodeStep, lengths: Sequence[int], seed: int) -> "Probe":
        """One that runs this step."""
        return cls(lengths, step, Stopwatch(step.target.device), np.random.default_rng(seed))

    def gather(self, states: Sequence[RequestState]) -> Running:
        """See `acceptor.app.engine.runner.Runner.gather`."""
        return Running.gather(states, self._step.target.device)

    def run(
        self, running: Running, rooms: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """See `acceptor.app.engine.runner.Runner.run`."""
        drawn = int(self._generator.choice(self.lengths))
        shorter = [min(room, drawn) for room in rooms]
        self._stopwatch.reset()
        frontier = Frontier.of(running, shorter)
        with self._stopwatch.time("draft"):
            draft = self._step.draft(frontier)
        with self._stopwatch.time("target"):
            logits = self._step.score(frontier, draft)
        with self._stopwatch.time("verification"):
            output = self._step.verify(frontier, draft, logits, token_counts)
        self._note(len(shorter), max(shorter))
        verdicts = read_verdicts(pack(draft, output), output)
        self.drafts += [(one.num_draft_tokens, one.num_accepted) for one in verdicts]
        return verdicts

    def take(self) -> ProbedStep | None:
        """The last step, once."""
        last, self.last = self.last, None
        return last

    def _note(self, num_reqs: int, num_spec_tokens: int) -> None:
        seconds = self._stopwatch.seconds
        self.last = ProbedStep(
            num_reqs=num_reqs,
            num_spec_tokens=num_spec_tokens,
            draft=seconds["draft"],
            target=seconds["target"],
            verification=seconds["verification"],
        )
