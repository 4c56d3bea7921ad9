"""What the parts of a step cost at one K, for batches of several sizes.

Where steps are captured, each part is captured alone; elsewhere the parts of many steps are timed.
This module refuses to know policies.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice

from attrs import frozen

from ..engine.cuda_graphs import GraphRunner
from ..engine.speed.served import time_parts
from ..tuning.costs import StepTimes
from ..tuning.measure import Plan, goodput_of, measure
from .load import Arrival
from .requests import Arrivals
from .run import Bench
from .sweep import Setting

_FIRST_STEPS = 8
"""So long are sequences on when their step is taken apart."""


@frozen(kw_only=True)
class TimedStep:
    """Medians over many steps of one batch.

    Attributes:
        requests: which of them are greedy.
        policy: its name.
        num_reqs: in a step.
        times: seconds.
    """

    requests: str
    policy: str
    num_reqs: int
    times: StepTimes


def step_times(bench: Bench, arrivals: Arrivals, plan: Plan) -> Iterator[tuple[int, StepTimes]]:
    """(num_reqs, seconds) at each concurrency of a plan, for the one setting of a benchmark.

    A size that was hardly seen, because requests ended too soon, is left out.
    """
    (setting,) = bench.sweep
    engine = bench.engine(setting, arrivals)
    if isinstance(engine.loop.runner, GraphRunner):
        for num_reqs in plan.concurrencies:
            yield num_reqs, _captured(bench, setting, arrivals, num_reqs)
        return
    costs = goodput_of([measure(engine, plan, arrivals.measured)]).costs
    for num_reqs in plan.concurrencies:
        if (num_reqs, setting.num_spec_tokens) in costs.medians:
            yield num_reqs, costs.times(num_reqs, setting.num_spec_tokens)


def _captured(bench: Bench, setting: Setting, arrivals: Arrivals, num_reqs: int) -> StepTimes:
    engine = bench.engine(setting, arrivals)
    runner = engine.loop.runner
    assert isinstance(runner, GraphRunner)
    for arrival in _first(arrivals.measured, num_reqs):
        engine.add_request(arrival.request)
    for _ in range(_FIRST_STEPS):
        engine.step()
    parts = time_parts(engine.loop.decode_step, runner)
    return StepTimes(**{name: milliseconds / 1000 for name, milliseconds in parts.items()})


def _first(arrivals: Sequence[Arrival], count: int) -> Iterator[Arrival]:
    return islice(cycle(arrivals), count)
