"""Runners that time each step and record the fate of its drafts. They wait for the device."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from attrs import define, field

from ...core.token_counts import TokenCounts
from ..decode import DecodeStep
from ..engine.engine import Engine
from ..engine.runner import Runner
from ..frontier import Frontier, Running
from ..request_state import RequestState, Verdict
from ..verdicts import pack, read_verdicts
from .costs import StepSample, StepTimes

Clock = Callable[[], float]


@define(eq=False)
class Stopwatch:
    """Adds up seconds by name.

    Attributes:
        device: waited for before each reading.
        clock: seconds so far.
        seconds: name -> what it took since `reset`.
    """

    device: torch.device
    clock: Clock
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
        return self.clock()


Drafts = list[tuple[int, int]]
"""(num_draft_tokens, num_accepted) of every draft."""


class Probe(Runner, Protocol):
    """A runner that observes its steps."""

    @property
    def drafts(self) -> Drafts:
        """Of all steps."""
        ...

    def take(self) -> StepSample | None:
        """What the last step cost, without the host's part, once."""
        ...


@define(eq=False)
class PartsProbe(Runner):
    """Runs a step part by part and times each, at a K that it draws anew for every step.

    One run so shows what steps cost at several K, and how far drafts are accepted.

    Attributes:
        lengths: the K of a step is one of these.
        drafts: of all steps.
    """

    lengths: Sequence[int]
    _step: DecodeStep
    _stopwatch: Stopwatch
    _generator: np.random.Generator
    _last: StepSample | None = field(default=None, init=False)
    drafts: Drafts = field(factory=list, init=False)

    @classmethod
    def of(cls, step: DecodeStep, lengths: Sequence[int], seed: int, clock: Clock) -> "PartsProbe":
        """One that runs this step."""
        stopwatch = Stopwatch(step.target.device, clock)
        return cls(lengths, step, stopwatch, np.random.default_rng(seed))

    def gather(self, states: Sequence[RequestState]) -> Running:
        """See `acceptor.app.engine.runner.Runner.gather`."""
        return Running.gather(states, self._step.target.device)

    def run(
        self, running: Running, draft_limits: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """See `acceptor.app.engine.runner.Runner.run`."""
        drawn = int(self._generator.choice(self.lengths))
        shorter = [min(limit, drawn) for limit in draft_limits]
        self._stopwatch.reset()
        frontier = Frontier.of(running, shorter)
        with self._stopwatch.time("draft"):
            draft = self._step.draft(frontier)
        with self._stopwatch.time("target"):
            logits = self._step.score(frontier, draft)
        with self._stopwatch.time("verification"):
            output = self._step.verify(frontier, draft, logits, token_counts)
        self._last = StepSample(
            num_reqs=len(shorter),
            num_spec_tokens=max(shorter),
            times=StepTimes(**self._stopwatch.seconds),
        )
        verdicts = read_verdicts(pack(draft, output), output)
        self.drafts += _drafts_of(verdicts)
        return verdicts

    def take(self) -> StepSample | None:
        """See `Probe.take`."""
        last, self._last = self._last, None
        return last


@define(eq=False)
class WholeProbe:
    """Times the steps of another runner, which has one K and whose parts cannot be told apart.

    Attributes:
        runner: runs the steps.
        num_spec_tokens: its K; a captured graph costs it whatever there is room for.
        clock: seconds so far.
        drafts: of all steps.
    """

    runner: Runner
    num_spec_tokens: int
    clock: Clock
    is_captured: bool = field(default=True, init=False)
    _last: StepSample | None = field(default=None, init=False)
    drafts: Drafts = field(factory=list, init=False)

    def gather(self, states: Sequence[RequestState]) -> Running:
        """See `Runner.gather`."""
        return self.runner.gather(states)

    def run(
        self, running: Running, draft_limits: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """See `Runner.run`, which waits for the device itself."""
        began = self.clock()
        verdicts = self.runner.run(running, draft_limits, token_counts)
        self._last = StepSample(
            num_reqs=len(draft_limits),
            num_spec_tokens=self.num_spec_tokens if max(draft_limits) else 0,
            times=StepTimes(graph=self.clock() - began),
        )
        self.drafts += _drafts_of(verdicts)
        return verdicts

    def begin(
        self,
        running: Running,
        draft_limits: Sequence[int],
        token_counts: TokenCounts | None,
        gained: Sequence[Sequence[int]] | None,
    ) -> bool:
        """See `Runner.begin`; what the host does meanwhile is measured as it is served."""
        return self.runner.begin(running, draft_limits, token_counts, gained)

    def drop(self) -> None:
        """See `Runner.drop`."""
        self.runner.drop()

    def take(self) -> StepSample | None:
        """See `Probe.take`."""
        last, self._last = self._last, None
        return last


def new_probe(engine: Engine, lengths: Sequence[int], seed: int, clock: Clock) -> Probe:
    """The probe for an engine's steps."""
    loop = engine.loop
    if loop.runner.is_captured:
        return WholeProbe(loop.runner, loop.decode_step.drafter.num_spec_tokens, clock)
    return PartsProbe.of(loop.decode_step, lengths, seed, clock)


def _drafts_of(verdicts: Sequence[Verdict]) -> Drafts:
    return [(one.num_draft_tokens, one.num_accepted) for one in verdicts]
