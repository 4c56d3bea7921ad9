"""How kernels are given to the driver."""

import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends.cupy_backend import CupySampler
from acceptor.backends.cupy_backend import device as devices
from acceptor.backends.cupy_backend.arguments import job_of
from acceptor.backends.cupy_backend.device import Device
from acceptor.backends.cupy_backend.job import MOST_PIECE_BLOCKS, Job
from acceptor.backends.cupy_backend.layout import Extent
from acceptor.backends.cupy_backend.plan import Plan, Plans, look_of
from acceptor.backends.cupy_backend.variant import KERNELS, Variant
from acceptor.core import (
    Block,
    InvalidInputError,
    Policy,
    Probabilistic,
    Strict,
    Synthetic,
    empty_verify_output,
)
from kit.batches import dense, stacked

VARIANT = Variant(0)


class Driver:
    """The parts of CuPy's module that `Device.kernel` and `Kernel.launch` use."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def moduleLoadData(self, code: bytes) -> int:  # noqa: N802 (the driver's name)
        return len(code)

    def moduleGetFunction(self, module: int, name: str) -> int:  # noqa: N802
        return module + len(name)

    def funcSetAttribute(self, *given: int) -> None:  # noqa: N802
        self.calls.append(("attribute", *given))

    def occupancyMaxActiveBlocksPerMultiprocessor(self, *given: int) -> int:  # noqa: N802
        _function, num_threads, _shared = given
        return 1024 // num_threads

    def launchKernel(self, *given: int) -> None:  # noqa: N802
        self.calls.append(("launch", *given))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    api = ModuleType("cupy_backends.cuda.api")
    api.driver = made  # type: ignore[attr-defined]
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.api", api)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 5, raising=False)
    return made


def device(architecture: int = 80) -> Device:
    compiled: Any = SimpleNamespace(load=lambda *_: b"code")
    return Device(0, architecture, 132, compiled)


@pytest.mark.parametrize("name", KERNELS)
def test_a_launch_has_the_shared_memory_that_it_counts_in(driver: Driver, name: str) -> None:
    form = KERNELS[name]
    shared = form.counts * VARIANT.count_bytes
    kernel = device().kernel(name, VARIANT)
    kernel.launch((7, 2), 5, 77)
    (call,) = (call for call in driver.calls if call[0] == "launch")
    assert call[2:] == (7, 2, 1, 32 * form.num_warps, 1, 1, shared, 5, 77, 0)
    assert kernel.room == 132 * 32 // form.num_warps
    assert form.counts == any(call[0] == "attribute" for call in driver.calls)


def test_only_what_follows_may_begin_early(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    early: list[Any] = []
    monkeypatch.setattr(devices, "driver_function", lambda: lambda *given: early.append(given))
    for architecture in (80, 90):
        for follows in (False, True):
            device(architecture).kernel("outputs", VARIANT).launch((7, 2), 5, 77, follows)
    assert len(early) == 1
    assert len(driver.calls) == 3


def plan(policy: Policy, num_reqs: int, **recipe: float) -> Plan:
    batch = dense(torch.zeros(num_reqs, 3, 4096, dtype=torch.bfloat16))
    return Plan.of(device(), job_of(batch, stacked(num_reqs, **recipe), policy))


@pytest.mark.usefixtures("driver")
def test_rows_are_cut_so_that_all_pieces_are_on_the_device_at_once() -> None:
    for recipe, room in (({}, 1056), ({"top_p": 0.9}, 528)):
        for num_reqs in (1, 5, 20):
            (_, grid), *_ = plan(Probabilistic(), num_reqs, **recipe).launches
            assert grid[0] * grid[1] <= room


def test_many_rows_without_filters_are_not_left_whole() -> None:
    for filtered, blocks in ((False, MOST_PIECE_BLOCKS), (True, 297)):
        job = Job(VARIANT, Extent(256, 3, 151_936, 151_936, filtered=filtered), {})
        job.cut(1056)
        assert job.fields["piece_blocks"] == blocks


@pytest.mark.usefixtures("driver")
def test_a_policy_has_the_launches_that_it_needs() -> None:
    needed = (Strict(), 1), (Probabilistic(), 2), (Synthetic([0.8, 0.6]), 2), (Block(), 3)
    for policy, number in needed:
        assert len(plan(policy, 1).launches) == number
    assert len(plan(Probabilistic(), 1, temperature=0.0).launches) == 1


@pytest.mark.usefixtures("driver")
def test_an_output_that_was_refused_is_refused_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known, sampler = plan(Strict(), 1), CupySampler()
    monkeypatch.setattr(Plans, "of", lambda *_: known)
    larger, batch = (dense(torch.zeros(1, 3, size)) for size in (8, 4))
    out = empty_verify_output(larger, stacked(1, logprobs=2), Strict())
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="out"):
            sampler.verify(batch, stacked(1), Strict(), out=out)


@pytest.mark.usefixtures("driver")
def test_a_workspace_and_a_policy_are_looked_at_when_they_are_new() -> None:
    known = plan(Strict(), 1)
    with pytest.raises(InvalidInputError, match=r"^workspace: "):
        known.words_in(torch.zeros(known.extent.num_bytes, dtype=torch.uint8))
    wrong: Any = "strict"
    with pytest.raises(InvalidInputError, match=r"^policy: .*, got 'strict'"):
        Plans().of(dense(torch.zeros(1, 3, 64)), stacked(1), wrong, lambda _: device())


@pytest.mark.parametrize("filtered", [False, True])
def test_what_is_loaded_by_sixteen_bytes_begins_at_such_a_multiple(filtered: bool) -> None:
    extent = Extent(3, 3, 1025, 513, sums_each=1, filtered=filtered, marked=True)
    areas = extent.areas(0, extent.num_bytes)
    assert not any(areas[name] % 16 for name in ("counts", "facts", "searches", "marks"))


def enqueue(sampler: CupySampler, on: Device, *kernels: Any) -> None:
    launches = [(kernel, (8, 1)) for kernel in kernels]
    step: Any = SimpleNamespace(device=on, extent=SimpleNamespace(num_reqs=1), launches=launches)
    sampler._enqueue(step, array("q", [0, 0]))


class Interrupted:
    """A kernel whose launch is interrupted by Ctrl-C."""

    def launch(self, *_: object) -> None:
        raise KeyboardInterrupt


def test_nobody_finds_what_an_interrupted_step_has_left(driver: Driver) -> None:
    sampler = CupySampler()
    halfway, others = torch.zeros(16), torch.zeros(16)
    sampler._workspaces.update({(0, 5): halfway, (0, 6): others})
    statistics = device().kernel("statistics", VARIANT)
    with pytest.raises(KeyboardInterrupt):
        enqueue(sampler, device(), statistics, Interrupted())
    assert len(driver.calls) == 1
    assert list(sampler._workspaces) == [(0, 6)]
    # The first launch, or a graph, may still work in it.
    assert sampler._outgrown[0] is halfway


@pytest.mark.parametrize("index", [0, 1])
def test_kernels_are_launched_on_the_device_of_the_tensors(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    entered: list[int] = []

    @contextmanager
    def entering(wanted: int) -> Iterator[None]:
        entered.append(wanted)
        with monkeypatch.context() as patch:
            patch.setattr(torch._C, "_cuda_getDevice", lambda: wanted)
            yield

    kernel, there = device().kernel("statistics", VARIANT), evolve(device(), index=index)
    monkeypatch.setattr(torch.cuda, "device", entering)
    enqueue(CupySampler(), there, kernel)
    assert len(driver.calls) == 1
    assert entered == [1] * index


def test_parameters_by_slot_are_known_again_in_every_step() -> None:
    batch, by_slot, other = dense(torch.zeros(2, 3, 64)), stacked(3), stacked(3)
    steps = [evolve(by_slot, slot_ids=torch.tensor(own)) for own in ([2, 0], [1, 2])]
    steps.append(evolve(other, slot_ids=torch.tensor([2, 0])))
    first, second, changed = (look_of(batch, params, Strict()) for params in steps)
    assert first == second
    assert first != changed
