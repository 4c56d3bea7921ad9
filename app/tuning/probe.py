"""Runners that time each step and record the fate of its drafts. They wait for the device."""

from collections.abc import Callable, Sequence
from itertools import pairwise
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


Drafts = list[tuple[int, int]]
"""(num_draft_tokens, num_accepted) of every draft."""


class Probe(Runner, Protocol):
    """A runner that observes its steps.

    Attributes:
        drafts: of all steps.
        sample: what the last step cost, without the host's part; None once it has been looked at.
    """

    drafts: Drafts
    sample: StepSample | None


@define(eq=False)
class PartsProbe(Runner):
    """Runs a step part by part and times each, at a K that it draws anew for every step.

    One run so shows what steps cost at several K, and how far drafts are accepted.

    Attributes:
        lengths: the K of a step is one of these.
        step: what runs.
        clock: seconds so far.
        generator: draws K.
        drafts, sample: see `Probe`.
    """

    lengths: Sequence[int]
    step: DecodeStep
    clock: Clock
    generator: np.random.Generator
    drafts: Drafts = field(factory=list, init=False)
    sample: StepSample | None = field(default=None, init=False)

    def gather(self, states: Sequence[RequestState]) -> Running:
        """See `acceptor.app.engine.runner.Runner.gather`."""
        return Running.gather(states, self.step.target.device)

    def run(
        self, running: Running, draft_limits: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """See `acceptor.app.engine.runner.Runner.run`."""
        drawn = int(self.generator.choice(self.lengths))
        shorter = [min(limit, drawn) for limit in draft_limits]
        times = [self._now()]
        frontier = Frontier.of(running, shorter)
        draft = self.step.draft(frontier)
        times.append(self._now())
        logits = self.step.score(frontier, draft)
        times.append(self._now())
        output = self.step.verify(frontier, draft, logits, token_counts)
        times.append(self._now())
        parts = (after - before for before, after in pairwise(times))
        self.sample = StepSample(
            num_reqs=len(shorter),
            num_spec_tokens=max(shorter),
            times=StepTimes(**dict(zip(("draft", "target", "verification"), parts, strict=True))),
        )
        verdicts = read_verdicts(pack(draft, output), output)
        self.drafts += _drafts_of(verdicts)
        return verdicts

    def _now(self) -> float:
        if self.step.target.device.type == "cuda":
            torch.cuda.synchronize(self.step.target.device)
        return self.clock()


@define(eq=False)
class WholeProbe:
    """Times the steps of another runner, which has one K and whose parts cannot be told apart.

    Attributes:
        runner: runs the steps.
        num_spec_tokens: its K; a captured graph costs it whatever there is room for.
        clock: seconds so far.
        drafts, sample: see `Probe`.
    """

    runner: Runner
    num_spec_tokens: int
    clock: Clock
    is_captured: bool = field(default=True, init=False)
    drafts: Drafts = field(factory=list, init=False)
    sample: StepSample | None = field(default=None, init=False)

    def gather(self, states: Sequence[RequestState]) -> Running:
        """See `Runner.gather`."""
        return self.runner.gather(states)

    def run(
        self, running: Running, draft_limits: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """See `Runner.run`, which waits for the device itself."""
        began = self.clock()
        verdicts = self.runner.run(running, draft_limits, token_counts)
        self.sample = StepSample(
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


def new_probe(engine: Engine, lengths: Sequence[int], seed: int, clock: Clock) -> Probe:
    """The probe for an engine's steps."""
    loop = engine.loop
    if loop.runner.is_captured:
        return WholeProbe(loop.runner, loop.decode_step.drafter.num_spec_tokens, clock)
    return PartsProbe(lengths, loop.decode_step, clock, np.random.default_rng(seed))


def _drafts_of(verdicts: Sequence[Verdict]) -> Drafts:
    return [(one.num_draft_tokens, one.num_accepted) for one in verdicts]
