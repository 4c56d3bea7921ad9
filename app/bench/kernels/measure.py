"""Runs workloads on backends and times calls one by one, each with a cold cache.

Calls are replays of CUDA graphs, and eager ones to their result. A backend that lacks a policy or a
recipe, or fails on it, loses only its own cell.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import cycle, groupby, islice
from operator import attrgetter
from statistics import median
from time import perf_counter
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor

from ....adapters.error_text import one_line, with_kind
from ....backends import load_sampler
from ....core import Sampler, UnavailableError, VerifyOutput
from ....core.policies.parameters import derived
from ...engine.capture import CudaRecorder
from .inputs import Logits, Step, make_step
from .workload import Cell, Line, Workload

Call = Callable[[], Any]

FLUSHED = {"cuda": 2**26}
"""Four-byte numbers: several times the size of level-2 caches of today's devices."""
FLOOR_COUNT = 30


@define(eq=False)
class Stopwatch:
    """Times calls on one device in microseconds, each with a cold cache. The calls take turns.

    A CPU has no graphs, and its caches are not flushed.
    """

    device: torch.device
    _flushed: Tensor = derived(
        lambda self: torch.empty(FLUSHED.get(self.device.type, 0), device=self.device)
    )
    _floors: dict[int, float] = field(factory=dict, init=False)

    def replays(self, calls: Sequence[Call], count: int) -> list[float]:
        """Times between two events around each replay of a call's CUDA graph."""
        event = partial(torch.cuda.Event, enable_timing=True)
        graphs, pairs = [*map(CudaRecorder(), calls)], [(event(), event()) for _ in range(count)]
        for replay, (start, end) in zip(cycle(graphs), pairs, strict=False):
            self._flushed.zero_()
            start.record()
            replay()
            end.record()
        self.wait()
        return [round(1000 * start.elapsed_time(end), 2) for start, end in pairs]

    def eager(self, calls: Sequence[Call], count: int) -> list[float]:
        """Times from each call to its synchronised result, by the host's clock."""
        times = []
        for call in calls:
            call()
        for call in islice(cycle(calls), count):
            self._flushed.zero_()
            self.wait()
            start = perf_counter()
            call()
            self.wait()
            times.append(round(1e6 * (perf_counter() - start), 2))
        return times

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def floor(self, num_bytes: int) -> float | None:
        """The median time to read these bytes at the fastest shape; None without CUDA or Triton."""
        if self.device.type != "cuda":
            return None
        try:
            from .read_once import SHAPES, read_once  # noqa: PLC0415, Triton may be missing
        except ImportError:
            return None
        if num_bytes not in self._floors:
            words = torch.zeros(num_bytes // 4, dtype=torch.int32, device=self.device)
            times = (self.replays([read_once(words, shape)], FLOOR_COUNT) for shape in SHAPES)
            self._floors[num_bytes] = min(map(median, times))
        return self._floors[num_bytes]


NEVER_CAPTURED = ("reference",)
"""Backends that wait for the device, which a CUDA graph cannot hold."""
BANDWIDTH_BYTES = 2**32
SHAPE = attrgetter("num_reqs", "num_spec_tokens", "vocab_size", "dtype", "inputs")
SEED = 0
"""The seed of all inputs."""


@frozen(eq=False)
class KernelBench:
    """Measures on one device, by so many calls of each kind.

    Attributes:
        num_sets: sets of inputs that take turns, so that none stays in a cache.
        num_checked: requests that the reference verifies, too.
        eager: whether eager calls are timed even where replays are.
    """

    backends: tuple[str, ...]
    stopwatch: Stopwatch
    count: int = 60
    num_sets: int = 4
    num_checked: int = 4
    eager: bool = True
    _sampler: Callable[[str], Sampler] = field(factory=lambda: cache(load_sampler), init=False)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of a plain read; None if it cannot be measured."""
        with torch.accelerator.device_index(self.stopwatch.device.index):
            floor = self.stopwatch.floor(BANDWIDTH_BYTES)
        return None if floor is None else BANDWIDTH_BYTES / (floor * 1e-6)

    def run(self, workloads: Iterable[Workload]) -> Iterator[Line]:
        """Measure one workload after the other; consecutive ones of a shape share logits."""
        for _, same_shape in groupby(workloads, SHAPE):
            logits: list[Logits] = []
            for workload in same_shape:
                with torch.accelerator.device_index(self.stopwatch.device.index):
                    noise = torch.Generator(self.stopwatch.device).manual_seed(SEED)
                    sets = range(self.num_sets)
                    logits = logits or [Logits.random(workload, noise) for _ in sets]
                    line = self._line(workload, logits)
                yield line

    def _line(self, workload: Workload, logits: Sequence[Logits]) -> Line:
        noise = torch.Generator(self.stopwatch.device).manual_seed(SEED + 1)
        reference = self._sampler("reference")
        steps = [make_step(workload, one, noise, reference) for one in logits]
        expected = reference.verify(*steps[0].first(self.num_checked)).token_ids
        cells = tuple(self._cell(name, steps, expected) for name in self.backends)
        return Line(workload=workload, floor=self.stopwatch.floor(workload.num_bytes), cells=cells)

    def _cell(self, name: str, steps: Sequence[Step], expected: Tensor) -> Cell:
        try:
            return self._measure(name, steps, expected)
        except Exception as error:  # noqa: BLE001 whatever a backend raises is shown in its cell
            said = one_line if isinstance(error, UnavailableError) else with_kind
            return Cell(backend=name, problem=said(error))

    def _measure(self, name: str, steps: Sequence[Step], expected: Tensor) -> Cell:
        sampler, stopwatch, start = self._sampler(name), self.stopwatch, perf_counter()
        outputs = [sampler.verify(*steps[0])]
        stopwatch.wait()
        first_call_seconds = perf_counter() - start
        outputs += [sampler.verify(*step) for step in steps[1:]]
        accepted = sum(float(output.num_accepted.float().mean()) for output in outputs)
        first = outputs[0].token_ids[: len(expected)]
        calls = _calls(sampler, steps, outputs)
        is_captured = stopwatch.device.type == "cuda" and name not in NEVER_CAPTURED
        is_eager = self.eager or not is_captured
        return Cell(
            backend=name,
            replays=tuple(stopwatch.replays(calls, self.count) if is_captured else ()),
            eager=tuple(stopwatch.eager(calls, self.count) if is_eager else ()),
            mean_accepted=accepted / len(outputs),
            num_checked=len(expected),
            num_different=int((first != expected).any(-1).sum()),
            first_call_seconds=round(first_call_seconds, 3),
        )


def _calls(sampler: Sampler, steps: Sequence[Step], outputs: Sequence[VerifyOutput]) -> list[Call]:
    """One call for each step, into preallocated memory."""
    size = max(sampler.verify_workspace_size(*step) for step in steps)
    workspace = torch.zeros(size, dtype=torch.uint8, device=outputs[0].token_ids.device)
    verify = partial(sampler.verify, workspace=workspace)
    return [partial(verify, *step, out=out) for step, out in zip(steps, outputs, strict=True)]
