"""The measured run: the requests of a load at several concurrencies and several K.

A runner in between times each step and records the fate of its drafts. It waits for the device.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from statistics import fmean
from time import perf_counter, process_time
from typing import Any, cast

import numpy as np
import torch
from attrs import define, evolve, field, frozen

from ..bench.progress import OnEnded
from ..bench.requests import TimedRequest
from ..decode import DecodeStep
from ..engine.engine import Engine
from ..engine.runner import EagerRunner, Runner
from ..frontier import Running
from ..request import RequestRecord
from ..request_state import Verdict
from .costs import Key, StepCosts, StepTimes
from .goodput import Goodput
from .profile import AcceptanceProfile

Clock = Callable[[], float]

PART_OF = {"draft": "draft", "score": "target", "verify": "verification", "follow": "draft"}
"""What the seconds of each method of `DecodeStep` count to."""


@define(eq=False)
class TimedStep:
    """Stands for a `DecodeStep`, and times its parts one by one.

    Attributes:
        seconds: of each part, summed until they are cleared.
    """

    step: DecodeStep
    clock: Clock
    seconds: defaultdict[str, float] = field(factory=lambda: defaultdict(float), init=False)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.step, name)
        return partial(self._timed, PART_OF[name], value) if name in PART_OF else value

    def _timed(self, part: str, action: Callable[..., Any], *given: Any) -> Any:
        began = self._now()
        result = action(*given)
        self.seconds[part] += self._now() - began
        return result

    def _now(self) -> float:
        device = self.step.target.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return self.clock()


@define(eq=False, kw_only=True)
class Probe(Runner):
    """Times the steps of another runner, at a K that it draws anew for each.

    One run so shows what steps cost at several K, and how far drafts are accepted.

    Attributes:
        step: what it runs; None where the parts of a step cannot be told apart.
        lengths: the K of a step is one of these.
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
            step = TimedStep(loop.decode_step, clock)
            runner = EagerRunner(cast(DecodeStep, step))
        return cls(runner=runner, step=step, lengths=lengths, clock=clock, generator=generator)

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        """See `Runner.run`."""
        drawn = int(self.generator.choice(self.lengths))
        shorter = [min(limit, drawn) for limit in draft_limits]
        began = self.clock()
        verdicts = self.runner.run(running, shorter)
        parts = {"graph": self.clock() - began}
        if self.step is not None:
            parts = {**self.step.seconds}
            self.step.seconds.clear()
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


WARM_UP_STEPS = 4
"""The first steps at a concurrency fill caches."""


@frozen(kw_only=True)
class Plan:
    """What is measured.

    Attributes:
        lengths: each K; with 0 among them plain decoding is measured.
        concurrencies: how many requests are under way.
        predicted: concurrencies that are predicted beside those.
        num_steps: per concurrency.
        seed: of the draws.
        cpu_time: count processor time, which other work on the machine hardly disturbs; of use only
            where the models run on the CPU.
    """

    lengths: Sequence[int]
    concurrencies: Sequence[int]
    num_steps: int
    predicted: Sequence[int] = ()
    seed: int = 0
    cpu_time: bool = False

    @property
    def clock(self) -> Clock:
        """Seconds so far."""
        return process_time if self.cpu_time else perf_counter

    @property
    def total_steps(self) -> int:
        """Of the whole run."""
        return self.num_steps * len(self.concurrencies)


@define(eq=False)
class Measurement:
    """What one policy's measured run has shown so far.

    Attributes:
        samples: what steps cost that entered no prompt.
    """

    samples: list[tuple[Key, StepTimes]] = field(factory=list, init=False)
    drafts: list[tuple[int, int]] = field(factory=list, init=False)
    records: list[RequestRecord] = field(factory=list, init=False)
    prefill_seconds: float = field(default=0.0, init=False)

    def take(
        self,
        engine: Engine,
        plan: Plan,
        arrivals: Sequence[TimedRequest],
        on_ended: OnEnded = lambda _: None,
    ) -> None:
        """Run the plan on an engine that is made for its largest concurrency and K.

        Requests are served over and over, and the engine's runner is replaced by a probe.
        """
        # Every prompt is entered once: on a GPU the first one of a length waits for what it needs.
        engine.generate([evolve(arrival.request, max_tokens=1) for arrival in arrivals])
        loop = engine.loop
        probe = Probe.of(engine, plan.lengths, plan.seed, plan.clock)
        loop.runner, loop.clock, loop.prefill_seconds = probe, plan.clock, 0.0
        for concurrency in plan.concurrencies:
            coming, under_way = cycle(arrivals), set[int]()
            for number in range(plan.num_steps + WARM_UP_STEPS):
                new = islice(coming, concurrency - len(under_way))
                under_way.update(engine.add_request(arrival.request) for arrival in new)
                under_way -= self._step(engine, probe, counts=number >= WARM_UP_STEPS)
            while engine.has_unfinished():
                self._step(engine, probe, counts=False)
            on_ended(plan.num_steps)
        self.drafts += probe.drafts
        self.prefill_seconds += loop.prefill_seconds

    def _step(self, engine: Engine, probe: Probe, *, counts: bool) -> set[int]:
        """Take a step; the requests that ended."""
        prefill, began = engine.loop.prefill_seconds, probe.clock()
        ended = [progress.record for progress in engine.step() if progress.record is not None]
        seconds, seen = probe.clock() - began, probe.take_sample()
        if counts and seen is not None and engine.loop.prefill_seconds == prefill:
            key, times = seen
            self.samples.append((key, evolve(times, host=max(seconds - times.total, 0.0))))
        self.records += ended
        return {record.request_id for record in ended}

    def goodput(self) -> Goodput:
        """The model that all of it gives."""
        return Goodput(
            profile=AcceptanceProfile.of(self.drafts),
            costs=StepCosts.of(self.samples).rows,
            prefill_seconds=self.prefill_seconds / len(self.records),
            output_len=round(fmean(record.output_len for record in self.records)),
        )
