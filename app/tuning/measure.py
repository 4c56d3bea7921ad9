"""The measured run: the requests of a load at several concurrencies and several K."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, cycle, islice
from statistics import fmean, median
from time import perf_counter, process_time

from attrs import define, evolve, field, frozen

from ..bench.load import Arrival
from ..engine.engine import Engine
from .costs import StepCosts, StepSample
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
    def clock(self) -> Callable[[], float]:
        """Seconds so far."""
        return process_time if self.cpu_time else perf_counter

    @property
    def total_steps(self) -> int:
        """Of the whole run."""
        return self.num_steps * len(self.concurrencies)


@define
class EnteredPrompts:
    """Prompts that came at once, and the seconds of the steps in which they were entered."""

    num_prompts: int
    seconds: float = 0.0


@define(eq=False)
class MeasuredRun:
    """An engine with a probe, and what it has shown so far.

    Attributes:
        engine: runs the probe's steps.
        probe: times them.
        clock: seconds so far.
        samples: of the steps that count.
        prompts: that were entered, in the order in which they came.
        output_lens: tokens of each request that has ended.
    """

    engine: Engine
    probe: Probe
    clock: Callable[[], float]
    prompts: list[EnteredPrompts] = field(factory=list, init=False)
    samples: list[StepSample] = field(factory=list, init=False)
    output_lens: list[int] = field(factory=list, init=False)
    _under_way: set[int] = field(factory=set, init=False)

    def at(self, concurrency: int, num_steps: int, arrivals: Sequence[Arrival]) -> None:
        """Take so many steps with as many requests running; the next one follows one that ends."""
        coming = cycle(arrivals)
        for number in range(num_steps + WARM_UP_STEPS):
            new = list(islice(coming, concurrency - len(self._under_way)))
            self._under_way.update(self.engine.add_request(arrival.request) for arrival in new)
            if new:
                self.prompts.append(EnteredPrompts(len(new)))
            self._step(counts=number >= WARM_UP_STEPS)
        self._drain()

    def _step(self, *, counts: bool) -> None:
        prefill, began = self.engine.loop.prefill_seconds, self.clock()
        self._note_ends()
        seen, seconds = self.probe.sample, self.clock() - began
        self.probe.sample = None
        rest = max(seconds - (0.0 if seen is None else seen.times.total), 0.0)
        if self.engine.loop.prefill_seconds > prefill:
            self.prompts[-1].seconds += rest
        elif seen is not None and counts:
            self.samples.append(evolve(seen, times=evolve(seen.times, host=rest)))

    def _note_ends(self) -> None:
        for progress in self.engine.step():
            if progress.result is not None:
                self._under_way.discard(progress.request_index)
                self.output_lens.append(len(progress.result.token_ids))

    def _drain(self) -> None:
        while self.engine.has_unfinished():
            self._note_ends()


def measure(
    engine: Engine, plan: Plan, arrivals: Sequence[Arrival], on_steps: OnSteps = lambda _: None
) -> MeasuredRun:
    """Run the plan on an engine that is made for its largest concurrency and K.

    Args:
        engine: its runner is replaced by a probe.
        plan: what to measure; one K, the engine's own, where steps are captured.
        arrivals: the requests, over and over.
        on_steps: called with the number of steps of each part.
    """
    if engine.loop.runner.is_captured:
        _rehearse_prompts(engine, arrivals)
    probe = Probe.of(engine, plan.lengths, plan.seed, plan.clock)
    engine.loop.runner = probe
    run = MeasuredRun(engine, probe, plan.clock)
    for concurrency in plan.concurrencies:
        run.at(concurrency, plan.num_steps, arrivals)
        on_steps(plan.num_steps)
    return run


def _rehearse_prompts(engine: Engine, arrivals: Sequence[Arrival]) -> None:
    """Enter every prompt once: on a GPU the first one of a length waits for what it needs."""
    for arrival in arrivals:
        engine.add_request(evolve(arrival.request, max_tokens=1))
    while engine.has_unfinished():
        engine.step()


def goodput_of(runs: Sequence[MeasuredRun]) -> Goodput:
    """The model that runs under one policy give together."""
    return Goodput(
        profile=AcceptanceProfile.of(chain.from_iterable(run.probe.drafts for run in runs)),
        costs=StepCosts.of(chain.from_iterable(run.samples for run in runs)),
        prefill_seconds=prefill_seconds(chain.from_iterable(run.prompts for run in runs)),
        output_len=round(fmean(chain.from_iterable(run.output_lens for run in runs))),
    )


def prefill_seconds(prompts: Iterable[EnteredPrompts]) -> float:
    """Of one prompt: the median, as the first ones of a kind may wait for a compiler."""
    each = [one.seconds / one.num_prompts for one in prompts for _ in range(one.num_prompts)]
    return median(each) if each else 0.0
