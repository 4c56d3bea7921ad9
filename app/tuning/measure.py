"""The measured run: serves the requests of a load at several concurrencies and several K.

A runner in between times each step and records which drafts were accepted. It waits for the device.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from statistics import fmean
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from attrs import define, evolve, field, frozen

from ...core.policies.parameters import derived
from ..bench.requests import OnEnded, TimedRequest
from ..decode import DecodeStep
from ..engine.engine import Engine
from ..engine.runner import EagerRunner, Runner
from ..frontier import Running
from ..request import RequestRecord
from ..verdicts import Verdict
from .costs import Key, StepCosts, StepTimes
from .goodput import Goodput
from .profile import AcceptanceProfile

PART_OF = {
    "catch_up": "draft",
    "draft": "draft",
    "score": "target",
    "verify": "verification",
    "follow": "draft",
}
"""Method of `DecodeStep` -> the part that its seconds count for."""

WARM_UP_STEPS = 4
"""Steps to skip at each concurrency, because the first ones fill caches."""


@frozen(kw_only=True)
class Plan:
    """The plan of a measured run.

    Attributes:
        lengths: each K; 0 measures plain decoding.
        concurrencies: how many requests run at once.
        predicted: further concurrencies, which are only predicted.
        num_steps: steps per concurrency.
        seed: the seed of the draws.
        cpu_time: count processor time, which other work on the machine hardly disturbs; useful only
            if the models run on the CPU.
    """

    lengths: Sequence[int]
    concurrencies: Sequence[int]
    num_steps: int
    predicted: Sequence[int] = ()
    seed: int = 0
    cpu_time: bool = False

    @property
    def clock(self) -> Callable[[], float]:
        """The clock in seconds."""
        return process_time if self.cpu_time else perf_counter

    @property
    def total_steps(self) -> int:
        """The steps of the whole run."""
        return self.num_steps * len(self.concurrencies)


@define(eq=False)
class Measurement(Runner):
    """One engine's measurements so far; it stands between the engine and its runner.

    Each step has a new random K, so that one run measures the cost of steps at several K, and how
    far drafts are accepted. Captured steps have one K, the engine's own.

    Attributes:
        engine: made for the plan's largest concurrency and K.
        samples: the costs of steps that entered no prompt.
        drafts: (num_draft_tokens, num_accepted) of every draft of all steps.
    """

    engine: Engine
    plan: Plan
    samples: list[tuple[Key, StepTimes]] = field(factory=list, init=False)
    drafts: list[tuple[int, int]] = field(factory=list, init=False)
    records: list[RequestRecord] = field(factory=list, init=False)
    _runner: Runner = derived(lambda self: self.engine.loop.runner)
    _lengths: Sequence[int] = derived(lambda self: self.plan.lengths)
    _seconds: defaultdict[str, float] = field(factory=lambda: defaultdict(float), init=False)
    _seen: tuple[Key, StepTimes] | None = field(default=None, init=False)
    _generator: np.random.Generator = derived(lambda self: np.random.default_rng(self.plan.seed))

    def __attrs_post_init__(self) -> None:
        step = self.engine.loop.decode_step
        if self._runner.is_captured:
            self._lengths = (step.drafter.num_spec_tokens,)
        else:
            timed = {name: partial(self._timed, getattr(step, name)) for name in PART_OF}
            self._runner = EagerRunner(cast(DecodeStep, SimpleNamespace(**timed)))

    def _timed(self, action: Callable[..., Any], *given: Any) -> Any:
        """Run a part of a step, and count its seconds."""
        began = self._now()
        result = action(*given)
        self._seconds[PART_OF[action.__name__]] += self._now() - began
        return result

    def _now(self) -> float:
        device = self.engine.loop.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return self.plan.clock()

    def take(
        self, arrivals: Sequence[TimedRequest], on_ended: OnEnded = lambda _: None
    ) -> "Measurement":
        """Run the plan, serving requests over and over."""
        # Every prompt is entered once before: on a GPU the first prompt of a length is slower.
        self.engine.generate([evolve(arrival.request, max_tokens=1) for arrival in arrivals])
        loop, num_steps = self.engine.loop, self.plan.num_steps
        loop.runner, loop.clock, loop.prefill_seconds = self, self.plan.clock, 0.0
        for concurrency in self.plan.concurrencies:
            coming, num_free = cycle(arrivals), concurrency
            for number in range(num_steps + WARM_UP_STEPS):
                for arrival in islice(coming, num_free):
                    self.engine.add_request(arrival.request)
                num_free = self._take_step(counts=number >= WARM_UP_STEPS)
            while self.engine.has_unfinished():
                self._take_step(counts=False)
            on_ended(num_steps)
        return self

    def _take_step(self, *, counts: bool) -> int:
        """Take a step; returns how many requests ended."""
        loop, began = self.engine.loop, self.plan.clock()
        prefill_seconds = loop.prefill_seconds
        ended = [one.record for one in self.engine.step() if one.record is not None]
        seconds, seen, self._seen = self.plan.clock() - began, self._seen, None
        if counts and seen is not None and loop.prefill_seconds == prefill_seconds:
            key, times = seen
            self.samples.append((key, evolve(times, host=max(seconds - times.total, 0.0))))
        self.records += ended
        return len(ended)

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        """See `Runner.run`."""
        drawn = int(self._generator.choice(self._lengths))
        shorter = [min(limit, drawn) for limit in draft_limits]
        began = self.plan.clock()
        verdicts = self._runner.run(running, shorter)
        parts = {**self._seconds} or {"graph": self.plan.clock() - began}
        self._seconds.clear()
        self._seen = (len(shorter), max(shorter)), StepTimes(**parts)
        self.drafts += [(one.num_draft_tokens, one.num_accepted) for one in verdicts]
        return verdicts

    def begin(self, *given: Any) -> bool:
        """See `Runner.begin`; the host's overlapping work is measured as in serving."""
        return self._runner.begin(*given)

    def drop(self) -> None:
        """See `Runner.drop`."""
        self._runner.drop()


def goodput_of(measured: Sequence[Measurement]) -> Goodput:
    """The model that follows from the measured runs of one policy."""
    records = [record for one in measured for record in one.records]
    return Goodput(
        profile=AcceptanceProfile.of(draft for one in measured for draft in one.drafts),
        costs=StepCosts.of(sample for one in measured for sample in one.samples).rows,
        prefill_seconds=sum(one.engine.loop.prefill_seconds for one in measured) / len(records),
        output_len=round(fmean(record.output_len for record in records)),
    )
