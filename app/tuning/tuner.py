"""From models and a load to predictions: measures every policy, and predicts."""

from datetime import UTC, datetime

from attrs import evolve, frozen

from ..bench.kernels.machine import describe
from ..bench.progress import Begin
from ..bench.requests import Arrivals, make_arrivals
from ..bench.run import Bench
from ..bench.sweep import PLAIN, Setting
from ..engine.engine import Engine
from .goodput import Goodput, Prediction, predict
from .measure import Measurement, Plan
from .results import TuneResults


@frozen(eq=False, kw_only=True)
class Tuner:
    """Everything that is tuned.

    Attributes:
        bench: the models, the policies and the load; one temperature and one backend.
        plan: what is measured.
    """

    bench: Bench
    plan: Plan

    def run(self, begin: Begin) -> TuneResults:
        """Measure and predict.

        Args:
            begin: see `Begin`; steps are counted.

        Raises:
            AcceptorError: a policy, backend or request does not fit.
        """
        models = {name: self._measure(name, begin) for name in self.bench.sweep.policies}
        return TuneResults(
            date=datetime.now(UTC).date().isoformat(),
            machine=describe(self.bench.pair.target.device),
            models=self.bench.pair.names,
            load=self.bench.load,
            temperature=self.bench.sweep.temperatures[0],
            backend=self.bench.sweep.backends[0],
            cpu_time=self.plan.cpu_time,
            policies=models,
            predictions=tuple(self._predict(models)),
        )

    def _setting(self, policy: str, num_spec_tokens: int) -> Setting:
        return Setting(
            policy=policy,
            num_spec_tokens=num_spec_tokens,
            temperature=self.bench.sweep.temperatures[0],
            backend=self.bench.sweep.backends[0],
        )

    def _measure(self, policy: str, begin: Begin) -> Goodput:
        params = evolve(self.bench.sampling, temperature=self.bench.sweep.temperatures[0])
        arrivals = make_arrivals(self.bench.load, self.bench.prompts, params)
        engines, measured = self._engines(policy, arrivals), Measurement()
        on_ended = begin(f"measure {policy}", len(engines) * self.plan.total_steps)
        for engine in engines:
            measured.take(engine, self.plan, arrivals.measured, on_ended)
        return measured.goodput()

    def _engines(self, policy: str, arrivals: Arrivals) -> list[Engine]:
        """One engine for every K, where steps are captured and so have one; else one for all."""
        lengths = sorted(self.plan.lengths, reverse=True)
        longest = self.bench.engine(self._setting(policy, lengths[0]), arrivals)
        if not longest.loop.runner.is_captured:
            return [longest]
        others = (self.bench.engine(self._setting(policy, one), arrivals) for one in lengths[1:])
        return [longest, *others]

    def _predict(self, models: dict[str, Goodput]) -> list[Prediction]:
        first = next(iter(models.values()))
        concurrencies = sorted({*self.plan.concurrencies, *self.plan.predicted})
        lengths = range(1, max(self.plan.lengths) + 1)
        plain = predict({PLAIN: first}, [0], concurrencies) if 0 in self.plan.lengths else []
        return [*plain, *predict(models, lengths, concurrencies)]
