"""Runs `acceptor tune`, once its flags are parsed; importing this imports everything."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from ...core import ConfigError
from ...core.checks import check_integer
from ..bench.files import check_outputs, write_outputs
from ..bench.main import check_cpu_time, make_bench, progress_bars
from ..console import new_console
from ..engine.parts import MAX_SLOTS
from ..policies import make_policy
from .measure import Plan
from .tables import as_markdown, curve, print_results
from .tuner import Tuner

Options = Mapping[str, Any]
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
    write_outputs(results, as_markdown(results), options)
    if options["curve"] is not None:
        curve(results).draw(options["curve"])
        console.print(f"drawn: {options['curve']}", soft_wrap=True)


def make_tuner(options: Options) -> Tuner:
    """Make the tuner that the options describe."""
    plan = _plan(options)
    check_cpu_time(options)
    usual = () if options["synthetic_rates"] else USUAL_POLICIES
    bench = make_bench(
        {
            **options,
            "policies": options["policies"] or usual,
            "temperatures": (options["temperature"],),
            "backends": (options["backend"],),
            "at_once": plan.concurrencies[-1:],
            "warm_up": 0,
        }
    )
    # A rate alone means different chances for every K, which one profile could not describe.
    policies = {
        name: make_policy(one, max(plan.lengths)) for name, one in bench.sweep.policies.items()
    }
    bench = evolve(bench, sweep=evolve(bench.sweep, policies=policies))
    return Tuner(bench=bench, plan=plan)


def _plan(options: Options) -> Plan:
    lengths, concurrencies = options["num_spec_tokens"], options["concurrency"]
    predicted: Sequence[int] = options["predict_concurrency"] or ()
    for concurrency in (*concurrencies, *predicted):
        check_integer("concurrency", concurrency, 1, MAX_SLOTS)
    if max(lengths) == 0:
        raise ConfigError("num_spec_tokens: expected one above 0 to choose from, got 0 only")
    if len(concurrencies) == 1 and not {*predicted} <= {*concurrencies}:
        raise ConfigError(
            "--predict-concurrency: expected two that are measured to draw a line through, got "
            f"--concurrency {concurrencies[0]}"
        )
    return Plan(
        lengths=sorted(lengths),
        concurrencies=sorted(concurrencies),
        num_steps=options["steps"],
        predicted=sorted(predicted),
        seed=options["seed"],
        cpu_time=options["cpu_time"],
    )
