"""Runs workloads on backends and times them; refuses to print.

A backend that lacks a policy or a recipe, or breaks on it, costs its own cell and no other.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from inspect import signature
from itertools import groupby
from typing import Any

import torch
from attrs import field, frozen

from ....backends import load_sampler
from ....core.errors import UnavailableError
from ....core.output import VerifyOutput
from ....core.ports import Sampler
from ...current_device import current_device
from .floor import Floor, measure_bandwidth, measure_floor
from .inputs import Logits, Step, make_step
from .results import Cell, Line, Times
from .stopwatch import Call, Stopwatch, capture
from .workload import Workload

NEVER_CAPTURED = ("reference",)
"""Backends that wait for the device, which a CUDA graph cannot hold."""
MOST_CHECKED = 4
"""Requests of a workload that the reference verifies, too."""

Progress = Callable[[Line], None]


@frozen(eq=False)
class Bench:
    """Measures on one device.

    Attributes:
        backends: names in the registry.
        stopwatch: times on the device.
        num_sets: inputs that take turns, so that none stays in a cache.
        seed: of all inputs.
        check: compare tokens with the reference's.
    """

    backends: tuple[str, ...]
    stopwatch: Stopwatch
    num_sets: int = 4
    seed: int = 0
    check: bool = True
    _samplers: dict[str, Sampler] = field(factory=dict, init=False)

    @property
    def device(self) -> torch.device:
        """Where everything runs."""
        return self.stopwatch.device

    def run(self, workloads: Iterable[Workload], progress: Progress) -> tuple[Line, ...]:
        """Measure one workload after the other; neighbours of one shape share their logits."""
        lines = []
        for _, same_shape in groupby(workloads, _shape):
            logits: list[Logits] = []
            for workload in same_shape:
                with current_device(self.device):
                    logits = logits or self._random_logits(workload)
                    line = self._line(workload, logits)
                progress(line)
                lines.append(line)
        return tuple(lines)

    def bandwidth(self) -> float | None:
        """Bytes per second of a plain read; None where it cannot be measured."""
        if self.device.type != "cuda":
            return None
        try:
            with current_device(self.device):
                return measure_bandwidth(self.stopwatch, torch.cuda.Stream(self.device))
        except UnavailableError:
            return None

    def _random_logits(self, workload: Workload) -> list[Logits]:
        noise = torch.Generator(self.device).manual_seed(self.seed)
        return [Logits.random(workload, noise) for _ in range(self.num_sets)]

    def _line(self, workload: Workload, logits: Sequence[Logits]) -> Line:
        cells = tuple(self._cell(name, workload, logits) for name in self.backends)
        return Line(workload=workload, floor=self._floor(workload, logits), cells=cells)

    def _floor(self, workload: Workload, logits: Sequence[Logits]) -> Floor | None:
        if self.device.type != "cuda":
            return None
        with_draft = workload.reads_draft_logits and workload.num_spec_tokens > 0
        sets = [[one.target, one.draft] if with_draft else [one.target] for one in logits]
        try:
            return measure_floor(sets, self.stopwatch, torch.cuda.Stream(self.device))
        except UnavailableError:
            return None

    def _cell(self, name: str, workload: Workload, logits: Sequence[Logits]) -> Cell:
        try:
            return self._measure(name, workload, logits)
        except Exception as error:  # noqa: BLE001 whatever a backend raises is shown in its cell
            text = " ".join(str(error).split())[:300]
            kind = "" if isinstance(error, UnavailableError) else f"{type(error).__name__}: "
            return Cell(backend=name, problem=kind + text)

    def _measure(self, name: str, workload: Workload, logits: Sequence[Logits]) -> Cell:
        sampler = self._sampler(name)
        noise = torch.Generator(self.device).manual_seed(self.seed + 1)
        steps = [make_step(workload, one, noise, sampler) for one in logits]
        stream = None
        if self.device.type == "cuda":
            stream = torch.cuda.Stream(self.device)
            stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            self.stopwatch.wait()
            start = time.perf_counter()
            outputs = [sampler.verify(s.batch, s.params, s.policy) for s in steps[:1]]
            self.stopwatch.wait()
            first_call_seconds = time.perf_counter() - start
            outputs += [sampler.verify(s.batch, s.params, s.policy) for s in steps[1:]]
            accepted = sum(float(output.num_accepted.float().mean()) for output in outputs)
            num_checked, num_different = self._compare(steps[0], outputs[0])
            calls = _calls(sampler, steps, outputs)
            times = self._times(calls, None if name in NEVER_CAPTURED else stream)
        return Cell(
            backend=name,
            times=times,
            mean_accepted=accepted / len(outputs),
            num_checked=num_checked,
            num_different=num_different,
            first_call_seconds=round(first_call_seconds, 3),
        )

    def _times(self, calls: Sequence[Call], stream: torch.cuda.Stream | None) -> Times:
        for call in calls:
            call()
        eager = self.stopwatch.eager
        eager_cold, eager_warm = eager(calls, cold=True), eager(calls[:1], cold=False)
        graph_cold: list[float] = []
        graph_warm: list[float] = []
        if stream is not None:
            replays = [graph.replay for graph in capture(calls, stream)]
            graph_cold = self.stopwatch.replays(replays, cold=True)
            graph_warm = self.stopwatch.replays(replays[:1], cold=False)
        return Times(
            graph_cold=_rounded(graph_cold),
            graph_warm=_rounded(graph_warm),
            eager_cold=_rounded(eager_cold),
            eager_warm=_rounded(eager_warm),
        )

    def _compare(self, step: Step, output: VerifyOutput) -> tuple[int, int]:
        if not self.check:
            return 0, 0
        few = step.first(MOST_CHECKED)
        expected = self._sampler("reference").verify(few.batch, few.params, few.policy).token_ids
        different = (output.token_ids[: len(expected)] != expected).any(-1)
        return len(expected), int(different.sum())

    def _sampler(self, name: str) -> Sampler:
        if name not in self._samplers:
            self._samplers[name] = load_sampler(name)
        return self._samplers[name]


def _shape(workload: Workload) -> tuple[int, int, int, str]:
    return (
        workload.num_reqs,
        workload.num_spec_tokens,
        workload.vocab_size,
        workload.dtype,
    )


def _calls(sampler: Sampler, steps: Sequence[Step], outputs: Sequence[VerifyOutput]) -> list[Call]:
    """One call for each step, into memory that exists already if the backend can use it."""
    known = signature(sampler.verify).parameters
    size_of = getattr(sampler, "verify_workspace_size", None)
    shared: dict[str, Any] = {}
    if size_of is not None and "workspace" in known:
        size = max(size_of(step.batch, step.params, step.policy) for step in steps)
        shared["workspace"] = torch.zeros(size, device=steps[0].batch.target_logits.device)
    return [
        partial(
            sampler.verify,
            step.batch,
            step.params,
            step.policy,
            **shared,
            **({"out": output} if "out" in known else {}),
        )
        for step, output in zip(steps, outputs, strict=True)
    ]


def _rounded(times: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, 2) for value in times)
