"""A runner that times each step and records the fate of its drafts. It waits for the device."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from attrs import define, field, fields, frozen

from ...core.token_counts import TokenCounts
from ..decode import DecodeStep
from ..engine.engine import Engine
from ..engine.runner import EagerRunner, Runner
from ..frontier import Running
from ..request_state import RequestState, Verdict
from .costs import Key, StepTimes

Clock = Callable[[], float]


@frozen(eq=False, kw_only=True)
class TimedStep(DecodeStep):
    """A step whose parts are timed one by one.

    Attributes:
        clock: seconds so far.
        seconds: of each part, the last time.
    """

    clock: Clock
    seconds: dict[str, float] = field(factory=dict, init=False)

    @classmethod
    def of(cls, step: DecodeStep, clock: Clock) -> "TimedStep":
        """The same step."""
        parts = {part.name: getattr(step, part.name) for part in fields(DecodeStep)}
        return cls(clock=clock, **parts)

    def draft(self, *given: Any) -> Any:
        """See `DecodeStep.draft`."""
        return self._timed("draft", super().draft, given)

    def score(self, *given: Any) -> Any:
        """See `DecodeStep.score`."""
        return self._timed("target", super().score, given)

    def verify(self, *given: Any) -> Any:
        """See `DecodeStep.verify`."""
        return self._timed("verification", super().verify, given)

    def _timed(self, part: str, action: Callable[..., Any], given: Sequence[Any]) -> Any:
        began = self._now()
        result = action(*given)
        self.seconds[part] = self._now() - began
        return result

    def _now(self) -> float:
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        return self.clock()


@define(eq=False, kw_only=True)
class Probe(Runner):
    """Times the steps of another runner, at a K that it draws anew for each.

    One run so shows what steps cost at several K, and how far drafts are accepted.

    Attributes:
        runner: runs the steps.
        step: what it runs; None where the parts of a step cannot be told apart.
        lengths: the K of a step is one of these.
        clock: seconds so far.
        generator: draws K.
        drafts: (num_draft_tokens, num_accepted) of every draft of all steps.
    """

    runner: Runner
    step: TimedStep | None
    lengths: Sequence[int]
    clock: Clock
    generator: np.random.Generator
    drafts: list[tuple[int, int]] = field(factory=list, init=False)
    _sample: tuple[Key, StepTimes] | None = field(default=None, init=False)

    @classmethod
    def of(cls, engine: Engine, lengths: Sequence[int], seed: int, clock: Clock) -> "Probe":
        """For an engine's steps; where they are captured they have one K, the engine's own."""
        loop, generator = engine.loop, np.random.default_rng(seed)
        runner, step = loop.runner, None
        if runner.is_captured:
            lengths = (loop.decode_step.drafter.num_spec_tokens,)
        else:
            step = TimedStep.of(loop.decode_step, clock)
            runner = EagerRunner(step)
        return cls(runner=runner, step=step, lengths=lengths, clock=clock, generator=generator)

    def gather(self, states: Sequence[RequestState]) -> Running:
        """See `Runner.gather`."""
        return self.runner.gather(states)

    def run(
        self, running: Running, draft_limits: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """See `Runner.run`."""
        drawn = int(self.generator.choice(self.lengths))
        shorter = [min(limit, drawn) for limit in draft_limits]
        began = self.clock()
        verdicts = self.runner.run(running, shorter, token_counts)
        parts = {"graph": self.clock() - began} if self.step is None else self.step.seconds
        self._sample = (len(shorter), max(shorter)), StepTimes(**parts)
        self.drafts += [(one.num_draft_tokens, one.num_accepted) for one in verdicts]
        return verdicts

    def take_sample(self) -> tuple[Key, StepTimes] | None:
        """What the last step cost, without the host's part; None once it has been looked at."""
        sample, self._sample = self._sample, None
        return sample

    def begin(self, *given: Any) -> bool:
        """See `Runner.begin`; what the host does meanwhile is measured as it is served."""
        return self.runner.begin(*given)

    def drop(self) -> None:
        """See `Runner.drop`."""
        self.runner.drop()
