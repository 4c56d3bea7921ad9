"""The measured run: the requests of a load at several concurrencies, with K drawn anew per step.

This module refuses to predict; see `acceptor.app.tuning.goodput`.
"""

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from time import perf_counter

from attrs import define, field, frozen

from ..bench.load import Arrival
from ..engine.engine import Engine
from .costs import StepCosts, StepSample, StepTimes
from .goodput import Goodput
from .probe import Probe
from .profile import AcceptanceProfile

WARM_UP_STEPS = 4
"""The first steps at a concurrency fill caches."""

OnSteps = Callable[[int], None]


@frozen(kw_only=True)
class Plan:
    """What is measured.

    Attributes:
        lengths: K, drawn from these for each step; with 0 among them plain decoding is measured.
        concurrencies: how many requests are under way.
        num_steps: per concurrency.
        seed: of the draws.
    """

    lengths: Sequence[int]
    concurrencies: Sequence[int]
    num_steps: int
    seed: int = 0

    @property
    def total_steps(self) -> int:
        """Of the whole run."""
        return self.num_steps * len(self.concurrencies)


@define(eq=False)
class MeasuredRun:
    """An engine with a probe, and what it has shown so far."""

    engine: Engine
    probe: Probe
    samples: list[StepSample] = field(factory=list, init=False)
    _num_prompts: int = field(default=0, init=False)
    _under_way: set[int] = field(factory=set, init=False)
    _output_lens: list[int] = field(factory=list, init=False)

    def at(self, concurrency: int, num_steps: int, arrivals: Sequence[Arrival]) -> None:
        """Take so many steps with as many requests under way; who ends is followed by another."""
        coming = cycle(arrivals)
        for number in range(num_steps + WARM_UP_STEPS):
            for arrival in islice(coming, concurrency - len(self._under_way)):
                self._under_way.add(self.engine.add_request(arrival.request))
                self._num_prompts += 1
            self._step(counts=number >= WARM_UP_STEPS)
        self._drain()

    def goodput(self, output_len: int | None = None) -> Goodput:
        """The model that the run gives."""
        mean_len = round(sum(self._output_lens) / max(len(self._output_lens), 1))
        return Goodput(
            profile=AcceptanceProfile.of(self.probe.drafts),
            costs=StepCosts.of(self.samples),
            prefill_seconds=self.engine.loop.prefill_seconds / max(self._num_prompts, 1),
            output_len=max(mean_len, 1) if output_len is None else output_len,
        )

    def _step(self, *, counts: bool) -> None:
        prefill, began = self.engine.loop.prefill_seconds, perf_counter()
        self._note_ends()
        seconds = perf_counter() - began - (self.engine.loop.prefill_seconds - prefill)
        seen = self.probe.take()
        if seen is None or not counts:
            return
        known = seen.draft + seen.target + seen.verification
        times = StepTimes(
            draft=seen.draft,
            target=seen.target,
            verification=seen.verification,
            host=max(seconds - known, 0.0),
        )
        sample = StepSample(
            num_reqs=seen.num_reqs, num_spec_tokens=seen.num_spec_tokens, times=times
        )
        self.samples.append(sample)

    def _note_ends(self) -> None:
        for progress in self.engine.step():
            if progress.result is not None:
                self._under_way.discard(progress.request_index)
                self._output_lens.append(len(progress.result.token_ids))

    def _drain(self) -> None:
        while self.engine.has_unfinished():
            self._note_ends()


def measure(
    engine: Engine, plan: Plan, arrivals: Sequence[Arrival], on_steps: OnSteps = lambda _: None
) -> MeasuredRun:
    """Run the plan on an engine that is made for its largest concurrency and K.

    Args:
        engine: its runner is replaced by a probe.
        plan: what to measure.
        arrivals: the requests, over and over.
        on_steps: told how many steps each part took.
    """
    probe = Probe.of(engine.loop.decode_step, plan.lengths, plan.seed)
    engine.loop.runner = probe
    run = MeasuredRun(engine, probe)
    for concurrency in plan.concurrencies:
        run.at(concurrency, plan.num_steps, arrivals)
        on_steps(plan.num_steps)
    return run
