"""Runs `acceptor bench`, once its flags are parsed; importing this imports everything."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from attrs import evolve
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from ...adapters.error_text import unfit
from ...adapters.loader import random_any_model
from ...core import POLICIES, ConfigError, SamplingParams, Synthetic
from ...core.checks import check_choice
from ..config import DRAFTERS, DrafterConfig, ModelsConfig
from ..policies import PolicySettings, SyntheticSettings
from ..report import new_console
from ..tuning.goodput import Goodput
from ..tuning.results import read_results as read_tuned
from ..wiring import load_weights
from .command import Options, given
from .comparison import print_comparison
from .files import check_outputs, write_outputs
from .markdown import as_markdown
from .pair import Loader, Pair, load_pair, random_pair
from .plots import draw_all
from .public_pairs import OF_THE_PAIR, PAIRS
from .requests import Begin
from .results import BenchResults, joined, read_results
from .run import SHAPING, Bench
from .sweep import Load, Sweep
from .tables import print_results


def run(options: Options) -> None:
    """Run a benchmark, print its tables and write the requested files."""
    plots: Path | None = options["plots"]
    check_outputs(options, "--plots", plots and plots / "picture.svg")
    earlier = None if options["compare"] is None else read_results(options["compare"])
    console, parts, cpu_time = new_console(), list[BenchResults](), bool(options["cpu_time"])
    benches = [(bench, bench.memory_plan()) for bench in make_benches(options)]
    for bench, plan in benches:
        console.print(f"memory planned: {plan}", soft_wrap=True)
        with progress_bars() as begin:
            for latest in bench.results(begin):
                results = joined([*parts, latest])
                text = as_markdown(results, cpu_time=cpu_time)
                # After every run, because a long sweep may be interrupted.
                write_outputs(results, text, options)
        parts.append(latest)
    _print_load(console, results)
    print_results(console, results, cpu_time=cpu_time)
    if earlier is not None:
        print_comparison(console, results, earlier, cpu_time=cpu_time)
    if plots is not None:
        for path in draw_all(results, plots, cpu_time=cpu_time):
            console.print(f"drawn: {path}", soft_wrap=True)


@contextmanager
def progress_bars() -> Iterator[Begin]:
    """Show a bar on stderr, if it is a terminal, for each run that begins within the context."""
    console = new_console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        yield lambda name, total: partial(bars.advance, bars.add_task(name, total=total))


def make_benches(options: Options) -> Iterator[Bench]:
    """One benchmark for each drafter, with one target; only the first one decodes plainly, too."""
    names: Sequence[str | None] = options["drafter"] or (None,)
    if len(names) > 1 and options["adaptive"] is not None:
        raise ConfigError(f"--adaptive: expected one drafter beside it, got {len(names)}")
    _check_prompts(options)
    for name in names:
        _check_models({**options, "drafter": name})
    loaders = cache(load_weights), cache(random_any_model)
    for name in names:
        bench = make_bench({**options, "drafter": name}, *loaders)
        sweep = bench.sweep
        if len(names) > 1:
            drafting = [length for length in sweep.num_spec_tokens if length or name == names[0]]
            sweep = evolve(sweep, drafts_by=name, num_spec_tokens=drafting)
        if sweep.num_spec_tokens:
            yield evolve(bench, sweep=sweep)


def make_bench(options: Options, *loaders: Loader) -> Bench:
    """Make the benchmark that the options describe."""
    policies = _policies(options)
    goodputs = _goodputs(options.get("adaptive"), policies)
    at_once: Sequence[int] = options["max_concurrency"]
    several = at_once if len(at_once) > 1 else (None,)
    swept = {"policies": policies, "adaptive": bool(goodputs), "max_concurrencies": several}
    sweep = Sweep(**given(options, Sweep) | swept)
    chosen = {"max_concurrency": max(at_once), "prompts": _prompts_name(options)}
    load = Load(**given(options, Load) | chosen)
    pair = load_models(options, *loaders)
    prompts = pair.reader.prompts(load, options["file"], options["category"])
    if pair.parts.encode is None:
        load = evolve(load, input_len=load.input_len or 1)
    # Not by `given`: the draft's recipe and the draft's path have the same name.
    shaping = {name: options[name] for name in SHAPING if options.get(name) is not None}
    sampling = SamplingParams(**shaping)
    return Bench(
        pair=pair, sweep=sweep, load=load, sampling=sampling, prompts=prompts, goodputs=goodputs
    )


def load_models(
    options: Options, load: Loader = load_weights, make: Loader = random_any_model
) -> Pair:
    """The models that options name."""
    _check_models(options)
    models = ModelsConfig(**given(options, ModelsConfig))
    drafter = DrafterConfig(name=options["drafter"], num_layers=options["draft_layers"])
    file, draft = options["random_weights"], options["draft_random_weights"]
    if file is None:
        return load_pair(models, drafter, load)
    if file == OF_THE_PAIR:
        if not options.get("pair"):
            raise ConfigError("--random-weights: expected a config.json or --pair, got neither")
        file, draft = PAIRS[options["pair"]].shapes
    layers = options["layer_decay"], options["target_layers"]
    return random_pair(file, draft, models, drafter, *layers, make)


def _check_models(options: Options) -> None:
    """Refuse options that the other options make meaningless."""
    is_random, drafter = options["random_weights"] is not None, options["drafter"]
    if drafter is not None:
        check_choice("--drafter", drafter, DRAFTERS)
    if options["cpu_time"] and options["device"] != "cpu":
        raise ConfigError(f"--cpu-time: expected the device cpu, got {options['device']}")
    if options.get("pair") and options["target"] is None and not is_random:
        raise ConfigError("--pair: expected --target or --random-weights beside it, got neither")
    of_shapes = ("draft_random_weights", "layer_decay", "target_layers")
    fitting = "--random-weights beside it, got none"
    if is_random:
        fitting = "none beside --random-weights, got one"
    for name in ("target", "draft") if is_random else of_shapes:
        if options[name] is not None:
            raise ConfigError(f"--{name.replace('_', '-')}: expected {fitting}")
    if options["draft_layers"] is not None and drafter != "early-exit":
        got = "none" if drafter is None else drafter
        raise ConfigError(f"--draft-layers: expected --drafter early-exit beside it, got {got}")


def _check_prompts(options: Options) -> None:
    """Refuse prompts that would not be read."""
    synthetic = [name for name in ("random_weights", "input_len") if options[name] is not None]
    for flag, name in (("--prompts", "file"), ("--category", "category")):
        if synthetic and options[name] is not None:
            beside = synthetic[0].replace("_", "-")
            raise ConfigError(f"{flag}: expected none beside --{beside}, got one")


def _policies(options: Options) -> dict[str, PolicySettings]:
    rates: Sequence[float] = options["synthetic_acceptance_rate"] or ()
    names = options["policy"] or (() if rates else ("probabilistic",))
    for name in names:
        check_choice("--policy", name, POLICIES)
    if Synthetic.name in names and not rates:
        expected = "--synthetic-acceptance-rate beside synthetic"
        raise unfit("--policy", expected, "none", ConfigError)
    known = {name: POLICIES[name] for name in names if name != Synthetic.name}
    synthetic = {f"synthetic {rate:g}": SyntheticSettings(acceptance_rate=rate) for rate in rates}
    return known | synthetic


def _goodputs(file: Path | None, policies: Iterable[str]) -> Mapping[str, Goodput]:
    """The models from a file, which has those of these policies; none without a file."""
    tuned = {} if file is None else read_tuned(file).policies
    missing = [policy for policy in policies if policy not in tuned]
    if file and missing:
        raise unfit(file, f"a measured run of {missing[0]}", ", ".join(tuned), ConfigError)
    return tuned


def _prompts_name(options: Options) -> str:
    if options["input_len"] is not None or options["random_weights"] is not None:
        return "synthetic"
    source = "built-in" if options["file"] is None else options["file"].name
    of_these = f"/{','.join(options['category'])}" if options["category"] else ""
    return f"{source}{of_these}"


def _print_load(console: Console, results: BenchResults) -> None:
    load = results.load
    models = " and ".join(results.models.values())
    rate = "all at once" if load.request_rate is None else f"{load.request_rate:g} per second"
    console.print(f"{models} on {results.machine['device']}, {results.date}", soft_wrap=True)
    console.print(
        f"{load.num_requests} requests ({load.prompts} prompts) of {load.lengths} tokens, "
        f"{rate}, at most {load.max_concurrency} at a time",
        soft_wrap=True,
    )
