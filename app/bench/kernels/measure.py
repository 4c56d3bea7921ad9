"""Runs workloads on backends and times them.

A backend that lacks a policy or a recipe, or breaks on it, costs its own cell and no other.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from ....backends import load_sampler
from ....core.errors import UnavailableError
from ....core.output import VerifyOutput
from ....core.ports import Sampler
from ...current_device import current_device
from .floor import Floors
from .inputs import Step, make_step
from .logits import Logits
from .results import Cell, Line, Times
from .stopwatch import Call, Stopwatch, Timed, capture
from .workload import Workload

NEVER_CAPTURED = ("reference",)
"""Backends that wait for the device, which a CUDA graph cannot hold."""
Progress = Callable[[Line], None]


@frozen(eq=False)
class Bench:
    """Measures on one device.

    Attributes:
        backends: names in the registry.
        stopwatch: times on the device.
        num_sets: inputs that take turns, so that none stays in a cache.
        seed: of all inputs.
        num_checked: requests of a workload that the reference verifies, too.
        only_cold: time nothing but calls with a cold cache, captured where that can be.
        floors: what backends are held to.
    """

    backends: tuple[str, ...]
    stopwatch: Stopwatch
    num_sets: int = 4
    seed: int = 0
    num_checked: int = 4
    only_cold: bool = False
    floors: Floors = field(init=False)
    _samplers: dict[str, Sampler] = field(factory=dict, init=False)

    @floors.default
    def _make_floors(self) -> Floors:
        return Floors(self.stopwatch)

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
        with current_device(self.device):
            return self.floors.bandwidth

    def _random_logits(self, workload: Workload) -> list[Logits]:
        noise = torch.Generator(self.device).manual_seed(self.seed)
        return [Logits.random(workload, noise) for _ in range(self.num_sets)]

    def _line(self, workload: Workload, logits: Sequence[Logits]) -> Line:
        noise = torch.Generator(self.device).manual_seed(self.seed + 1)
        reference = self._sampler("reference")
        steps = [make_step(workload, one, noise, reference) for one in logits]
        expected = self._expected(steps[0])
        cells = tuple(self._cell(name, steps, expected) for name in self.backends)
        return Line(workload=workload, floor=self.floors.of(workload.num_bytes), cells=cells)

    def _expected(self, step: Step) -> Tensor:
        """The reference's tokens of the first requests."""
        if not self.num_checked:
            return torch.empty(0)
        few = step.first(self.num_checked)
        return self._sampler("reference").verify(few.batch, few.params, few.policy).token_ids

    def _cell(self, name: str, steps: Sequence[Step], expected: Tensor) -> Cell:
        try:
            return self._measure(name, steps, expected)
        except Exception as error:  # noqa: BLE001 whatever a backend raises is shown in its cell
            text = " ".join(str(error).split())[:300]
            kind = "" if isinstance(error, UnavailableError) else f"{type(error).__name__}: "
            return Cell(backend=name, problem=kind + text)

    def _measure(self, name: str, steps: Sequence[Step], expected: Tensor) -> Cell:
        sampler, stream = self._sampler(name), None
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
            num_different = _num_different(outputs[0].token_ids, expected)
            calls = _calls(sampler, steps, outputs)
            times = self._times(calls, None if name in NEVER_CAPTURED else stream)
        return Cell(
            backend=name,
            times=times,
            mean_accepted=accepted / len(outputs),
            num_checked=len(expected),
            num_different=num_different,
            first_call_seconds=round(first_call_seconds, 3),
        )

    def _times(self, calls: Sequence[Call], stream: torch.cuda.Stream | None) -> Times:
        for call in calls:
            call()
        if stream is None:
            graphs = Times()
        else:
            replays = [graph.replay for graph in capture(calls, stream)]
            graphs = Times(
                graph_cold=_rounded(self.stopwatch.replays(replays, cold=True)),
                graph_warm=self._warm(self.stopwatch.replays, replays),
            )
        if self.only_cold and stream is not None:
            return graphs
        eager = self.stopwatch.eager
        return evolve(
            graphs,
            eager_cold=_rounded(eager(calls, cold=True)),
            eager_warm=self._warm(eager, calls),
        )

    def _warm(self, timed: Timed, calls: Sequence[Call]) -> tuple[float, ...]:
        return () if self.only_cold else _rounded(timed(calls[:1], cold=False))

    def _sampler(self, name: str) -> Sampler:
        if name not in self._samplers:
            self._samplers[name] = load_sampler(name)
        return self._samplers[name]


def _shape(workload: Workload) -> tuple[object, ...]:
    return (
        workload.num_reqs,
        workload.num_spec_tokens,
        workload.vocab_size,
        workload.dtype,
        workload.inputs,
    )


def _calls(sampler: Sampler, steps: Sequence[Step], outputs: Sequence[VerifyOutput]) -> list[Call]:
    """One call for each step, into memory that exists already."""
    size = max(sampler.verify_workspace_size(s.batch, s.params, s.policy) for s in steps)
    device = steps[0].batch.target_logits.device
    workspace = torch.zeros(size, dtype=torch.uint8, device=device)
    return [
        partial(
            sampler.verify, step.batch, step.params, step.policy, out=output, workspace=workspace
        )
        for step, output in zip(steps, outputs, strict=True)
    ]


def _num_different(token_ids: Tensor, expected: Tensor) -> int:
    """How many of the first requests got other tokens."""
    if not len(expected):
        return 0
    return int((token_ids[: len(expected)] != expected).any(-1).sum())


def _rounded(times: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, 2) for value in times)
