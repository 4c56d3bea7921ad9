"""Runs a benchmark: every setting of a sweep through a fresh engine, with the same load."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from time import perf_counter, process_time

from attrs import asdict, evolve, field, frozen

from ...core import SamplingParams
from ..engine.engine import Engine
from ..engine.parts import Limits, MemoryPlan, Parts
from ..tuning.adaptive import AdaptiveRunner
from ..tuning.goodput import Goodput
from .figures import Figures
from .files import describe
from .pair import Pair
from .requests import Begin, OnEnded, Prompt, TimedRequest, make_arrivals, serve
from .results import BenchResults, BenchRun
from .sweep import Load, Setting, Sweep

SHAPING = ("top_k", "top_p", "min_p")
"""Settings that are the same in every run, but not part of a load."""

LEAST_SECONDS = 2.0
"""A rehearsed load that ends sooner is served again: the host's time for prompts varies."""


@frozen(eq=False, kw_only=True)
class Bench:
    """A sweep, ready to be run.

    Attributes:
        sampling: recipe of target and draft, except for temperature.
        prompts: warm-up first.
        goodputs: policy -> the model that chooses an adaptive K.
    """

    pair: Pair
    sweep: Sweep
    load: Load
    sampling: SamplingParams
    prompts: Sequence[Prompt]
    goodputs: Mapping[str, Goodput] = field(factory=dict)

    def run(self, begin: Begin = lambda *_: lambda _: None) -> BenchResults:
        """Run every setting; `begin` counts requests, see `Begin`.

        Raises:
            AcceptorError: a policy, backend or request does not fit.
        """
        *_, results = self.results(begin)
        return results

    def results(self, begin: Begin = lambda *_: lambda _: None) -> Iterator[BenchResults]:
        """Like `run`, but yields all results so far after every setting."""
        target, runs = self.pair.target, tuple[BenchRun, ...]()
        usual, sampling = asdict(SamplingParams()), asdict(self.sampling)
        results = BenchResults(
            date=datetime.now(UTC).date().isoformat(),
            machine=describe(target.device)
            | {"dtype": str(target.dtype).removeprefix("torch."), "forward": target.forward_name},
            models=self.pair.names,
            load=self.load,
            runs=runs,
            sampling={k: sampling[k] for k in SHAPING if sampling[k] != usual[k]},
        )
        for setting in self.sweep:
            runs += (self.serve(setting, begin, self.name(setting)),)
            yield evolve(results, runs=runs)

    def serve(self, setting: Setting, begin: Begin, name: str) -> BenchRun:
        """Serve one setting; the warm-up comes before the last `begin`."""
        engine, at_once, rehearsal = self.engine(setting), self._at_once(setting), None
        arrivals, num_measured = self.arrivals(setting), self.load.num_requests

        def measure(*watch: OnEnded) -> Figures:
            cpu_began = process_time()
            served = serve(engine, arrivals[-num_measured:], at_once, *watch)
            return Figures.of(served, process_time() - cpu_began)

        serve(engine, arrivals[:-num_measured], at_once)
        if self.rehearses:
            rehearsal = measure(begin(f"{name}, rehearsal", num_measured)).duration
        watch, began = begin(name, num_measured), perf_counter()
        passes = [measure(watch)]
        while self.rehearses and perf_counter() - began < LEAST_SECONDS:
            passes.append(measure())
        seconds = tuple(one.duration for one in passes)
        figures = sorted(passes, key=lambda one: one.duration)[len(passes) // 2]
        return BenchRun(setting, figures, rehearsal, seconds)

    @property
    def rehearses(self) -> bool:
        """Whether every load is served once before it counts.

        On a GPU a step is compiled and captured when the first batch of its size comes.
        """
        return bool(self.pair.target.device.type == "cuda")

    def memory_plan(self) -> MemoryPlan:
        """The plan of the setting with the longest drafts and then the most requests at once.

        Raises `AcceptorError` if the backend or the policy of any setting does not fit.
        """
        made = {setting: self._made_of(setting) for setting in self.sweep}
        parts, limits = made[max(made, key=lambda one: (one.num_spec_tokens, self._at_once(one)))]
        return MemoryPlan.of(parts, limits.num_slots, limits.max_len)

    def arrivals(self, setting: Setting) -> list[TimedRequest]:
        """The requests of a setting, warm-up first."""
        params = evolve(self.sampling, temperature=setting.temperature)
        return make_arrivals(self.load, self.prompts, params)

    def engine(self, setting: Setting) -> Engine:
        """A fresh engine, with memory for just the requests of the load."""
        engine = Engine.of(*self._made_of(setting))
        if setting.adaptive:
            model = self.goodputs[setting.policy]
            engine.loop.runner = AdaptiveRunner(
                runner=engine.loop.runner,
                costs=model.step_costs,
                profile=model.profile,
                max_spec_tokens=setting.num_spec_tokens,
            )
        return engine

    def _made_of(self, setting: Setting) -> tuple[Parts, Limits]:
        first, *_ = self.sweep.policies.values()
        # Without drafts all policies are the same.
        parts = self.pair.parts_of(setting, self.sweep.policies.get(setting.policy, first))
        requests = [one.request for one in self.arrivals(setting)]
        longest = max(len(one.prompt_token_ids) + one.max_tokens for one in requests)
        if self.pair.target.device.type == "cuda":
            # Kernels are compiled for each number of positions: use few, powers of two.
            longest = 1 << (longest - 1).bit_length()
        max_len = min(longest, self.pair.target.max_model_len)
        return parts, Limits(num_slots=self._at_once(setting), max_len=max_len)

    def _at_once(self, setting: Setting) -> int:
        return setting.max_concurrency or self.load.max_concurrency

    def name(self, setting: Setting) -> str:
        """The name of a setting, with the values that the sweep varies."""
        varied = {
            setting.label: True,
            f"T={setting.temperature:g}": len(self.sweep.temperatures) > 1,
            setting.backend: len(self.sweep.backends) > 1,
            f"{setting.max_concurrency} at a time": setting.max_concurrency is not None,
        }
        return ", ".join(name for name, is_shown in varied.items() if is_shown)
