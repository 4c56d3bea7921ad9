"""Runs `acceptor tune`: measures every policy under a load, predicts, and checks predictions."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import cycle, islice

from attrs import evolve, frozen

from ...adapters.error_text import unfit
from ...core import ConfigError
from ...core.checks import check_integers
from ..bench.command import Options, given
from ..bench.files import check_outputs, describe, write_outputs
from ..bench.main import make_bench, progress_bars
from ..bench.requests import Begin
from ..bench.run import Bench
from ..bench.sweep import PLAIN, Setting
from ..engine.engine import Engine
from ..engine.parts import MAX_SLOTS
from ..policies import make_policy
from ..report import new_console
from .costs import MIN_STEPS
from .goodput import Goodput, Prediction, predict
from .measure import Measurement, Plan, goodput_of
from .results import Check, TuneResults, as_markdown, curve, print_results

CHECK_ROUNDS = 6
"""A check serves at least this many requests per slot, so that its end, where slots are empty, does
not matter; and at least those of the load, so that chance does not."""


@frozen(eq=False, kw_only=True)
class Tuner:
    """Runs the measurements, predictions and checks.

    Attributes:
        bench: the models, the policies and the load; one temperature and one backend.
    """

    bench: Bench
    plan: Plan

    def run(self, begin: Begin, *, check: bool) -> TuneResults:
        """Measure, predict and, if asked, check predictions by running them.

        Args:
            begin: see `Begin`; it counts steps, and requests of checks.
            check: whether to run every policy at every predicted concurrency, each at every
                measured K and at one other.

        Raises:
            AcceptorError: a policy, backend or request does not fit.
        """
        models = {name: self._measure(name, begin) for name in self.bench.sweep.policies}
        concurrencies = sorted({*self.plan.concurrencies, *self.plan.predicted})
        plain = {PLAIN: next(iter(models.values()))} if 0 in self.plan.lengths else {}
        predictions = [
            *predict(plain, [0], concurrencies),
            *predict(models, range(1, max(self.plan.lengths) + 1), concurrencies),
        ]
        return TuneResults(
            date=datetime.now(UTC).date().isoformat(),
            machine=describe(self.bench.pair.target.device),
            models=self.bench.pair.names,
            load=self.bench.load,
            temperature=self.bench.sweep.temperatures[0],
            backend=self.bench.sweep.backends[0],
            cpu_time=self.plan.cpu_time,
            policies=models,
            predictions=tuple(predictions),
            checks=tuple(self._checks(predictions, begin)) if check else (),
        )

    def _setting(self, policy: str, num_spec_tokens: int) -> Setting:
        return evolve(next(iter(self.bench.sweep)), policy=policy, num_spec_tokens=num_spec_tokens)

    def _measure(self, policy: str, begin: Begin) -> Goodput:
        engines, arrivals = self._engines(policy), self.bench.arrivals(self._setting(policy, 0))
        on_ended = begin(f"measure {policy}", len(engines) * self.plan.total_steps)
        measurements = [Measurement(engine, self.plan) for engine in engines]
        return goodput_of([one.take(arrivals, on_ended) for one in measurements])

    def _engines(self, policy: str) -> list[Engine]:
        """One engine per K if steps are captured, and so have one K; else one engine for all."""
        lengths = sorted(self.plan.lengths, reverse=True)
        longest = self.bench.engine(self._setting(policy, lengths[0]))
        if not longest.loop.runner.is_captured:
            return [longest]
        return [longest, *(self.bench.engine(self._setting(policy, one)) for one in lengths[1:])]

    def _checks(self, predictions: Sequence[Prediction], begin: Begin) -> Iterator[Check]:
        others = sorted({*range(1, max(self.plan.lengths))} - {*self.plan.lengths})
        # The middle one of all K that were not measured.
        lengths = {*self.plan.lengths, *others[len(others) // 2 :][:1]}
        for prediction in predictions:
            if prediction.num_spec_tokens in lengths:
                yield self._check(prediction, begin)

    def _check(self, prediction: Prediction, begin: Begin) -> Check:
        setting = self._setting(prediction.policy, prediction.num_spec_tokens)
        name = f"check {setting.label} at {prediction.concurrency}"
        figures = self._bench_for(prediction.concurrency).serve(setting, begin, name).figures
        seconds = figures.cpu_seconds if self.plan.cpu_time else figures.duration
        return Check(
            prediction=prediction,
            measured=figures.num_output_tokens / seconds,
            is_new_length=prediction.num_spec_tokens not in self.plan.lengths,
            is_new_concurrency=prediction.concurrency not in self.plan.concurrencies,
        )

    def _bench_for(self, concurrency: int) -> Bench:
        load = evolve(
            self.bench.load,
            max_concurrency=concurrency,
            num_requests=max(CHECK_ROUNDS * concurrency, self.bench.load.num_requests),
            warm_up=1,
        )
        prompts = [*islice(cycle(self.bench.prompts), load.warm_up + load.num_requests)]
        return evolve(self.bench, load=load, prompts=prompts)


USUAL_POLICIES = ("probabilistic", "block")


def run(options: Options) -> None:
    """Measure, predict, print, and write the requested files."""
    check_outputs(options, "--curve", options["curve"])
    tuner = make_tuner(options)
    with progress_bars() as begin:
        results = tuner.run(begin, check=options["check"])
    console = new_console()
    models = " and ".join(results.models.values())
    console.print(f"{models} on {results.machine['device']}, {results.date}", soft_wrap=True)
    print_results(console, results)
    costs = next(iter(results.policies.values())).step_costs.medians.values()
    # All steps of a captured engine have its one K.
    least = MIN_STEPS * (1 if any(one.graph for one in costs) else len(tuner.plan.lengths))
    if tuner.plan.num_steps < least:
        console.print(f"These figures are rough: take --steps {least} or more.", soft_wrap=True)
    write_outputs(results, as_markdown(results), options)
    if options["curve"] is not None:
        curve(results).draw(options["curve"])
        console.print(f"drawn: {options['curve']}", soft_wrap=True)


def make_tuner(options: Options) -> Tuner:
    """Make the tuner that the options describe."""
    plan = _plan(options)
    usual = () if options["synthetic_acceptance_rate"] else USUAL_POLICIES
    changes = {
        "policy": options["policy"] or usual,
        "temperatures": (options["temperature"],),
        "backends": (options["backend"],),
        "max_concurrency": plan.concurrencies[-1:],
        "warm_up": 0,
    }
    bench = make_bench({**options, **changes})
    # A rate alone means different chances for every K, which one profile could not describe.
    longest = max(plan.lengths)
    policies = {name: make_policy(one, longest) for name, one in bench.sweep.policies.items()}
    bench = evolve(bench, sweep=evolve(bench.sweep, policies=policies))
    return Tuner(bench=bench, plan=plan)


def _plan(options: Options) -> Plan:
    lengths, concurrencies = options["num_spec_tokens"], options["concurrency"]
    predicted: Sequence[int] = options["predict_concurrency"] or ()
    check_integers("--concurrency", concurrencies, 1, MAX_SLOTS)
    check_integers("--predict-concurrency", predicted, 1, MAX_SLOTS)
    if max(lengths) == 0:
        raise ConfigError("--num-spec-tokens: expected one above 0 to choose from, got 0 only")
    if len(concurrencies) == 1 and not {*predicted} <= {*concurrencies}:
        expected = "two that are measured by --concurrency to draw a line through"
        raise unfit("--predict-concurrency", expected, concurrencies[0], ConfigError)
    return Plan(
        lengths=sorted(lengths),
        concurrencies=sorted(concurrencies),
        predicted=sorted(predicted),
        **given(options, Plan),
    )
