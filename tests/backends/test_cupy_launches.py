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
from acceptor.backends.cupy_backend.device import Device
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.backends.cupy_backend.variant import KernelPolicy, all_variants
from acceptor.backends.cupy_backend.workspace import Extent, Workspace


class Driver:
    """What `Device.kernel` and `Kernel.launch` ask of CuPy's module."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def moduleLoadData(self, code: bytes) -> int:  # noqa: N802 (the driver's name)
        return len(code)

    def moduleGetFunction(self, module: int, name: str) -> int:  # noqa: N802
        return module + len(name)

    def funcSetAttribute(self, *given: int) -> None:  # noqa: N802
        self.calls.append(("attribute", *given))

    def occupancyMaxActiveBlocksPerMultiprocessor(self, *given: int) -> int:  # noqa: N802
        _function, _num_threads, shared = given
        return 1 if shared else 2

    def launchKernel(self, *given: int) -> None:  # noqa: N802
        self.calls.append(("ordinary", *given))

    def launchCooperativeKernel(self, *given: int) -> None:  # noqa: N802
        self.calls.append(("cooperative", *given))


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
    return made


def device(shared_memory: int = 228 * 1024) -> Device:
    compiled = SimpleNamespace(load=lambda *_: b"code")
    return Device(0, 80, 132, shared_memory, compiled)  # type: ignore[arg-type]


def test_all_ctas_of_the_wide_kernel_are_on_the_device_at_once(driver: Driver) -> None:
    one = device()
    for variant in (variant for variant in all_variants() if variant.has_wide):
        kernel = one.verification("wide", variant)
        assert (kernel.room, kernel.waits) == (264, True)
        kernel.launch((133, 1, 1), 5, 77)
        assert driver.calls.pop() == ("cooperative", 8, 133, 1, 1, 512, 1, 1, 0, 5, 77)


@pytest.mark.parametrize("name", ["narrow", "rowwise", "pieces", "greedy_pieces"])
def test_nobody_waits_in_others(driver: Driver, name: str) -> None:
    kernel = device().kernel(name, ())
    kernel.launch((1000, 7, 4), 5, 77)
    (call,) = driver.calls
    assert (call[0], call[2:5]) == ("ordinary", (1000, 7, 4))


def test_any_launch_has_the_shared_memory_that_its_kernel_asks_for(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlapping: list[tuple[Any, ...]] = []
    monkeypatch.setattr(devices, "driver_function", lambda: None)
    monkeypatch.setattr(devices, "launch_overlapping", lambda *given: overlapping.append(given))
    hopper = evolve(device(), architecture=90)
    for name in ("narrow", "wide", "pieces_end"):
        hopper.kernel(name, (), 640).launch((7, 1, 1), 5, 77)
    ordinary, cooperative = (call for call in driver.calls if call[0] != "attribute")
    assert (ordinary[0], *ordinary[2:]) == ("ordinary", 7, 1, 1, 512, 1, 1, 640, 5, 77, 0)
    assert (cooperative[0], *cooperative[2:]) == ("cooperative", 7, 1, 1, 512, 1, 1, 640, 5, 77)
    assert [call[1:] for call in overlapping] == [((7, 1, 1), 512, 640, 5, 77)]


def test_berths_are_asked_for(driver: Driver) -> None:
    berthed = [variant for variant in all_variants() if variant.berths]
    assert berthed
    for variant in berthed:
        kernel = device().verification("narrow", variant)
        assert (kernel.room, kernel.shared) == (132, variant.berths)
        assert driver.calls.pop() == ("attribute", 10, 8, variant.berths)
        kernel.launch((7, 1, 1), 5, 77)
        call = driver.calls.pop()
        assert call == ("ordinary", 10, 7, 1, 1, 512, 1, 1, variant.berths, 5, 77, 0)
        assert device().verification("wide", variant).shared == 0


def test_berths_are_left_where_they_would_leave_a_processor_one_cta(driver: Driver) -> None:
    berthed = [variant for variant in all_variants() if variant.berths]
    for variant in berthed:
        for kilobytes, berths in ((100, 0), (164, variant.berths), (228, variant.berths)):
            one = device(kilobytes * 1024)
            kernel = one.verification("narrow", variant)
            assert (kernel.room, kernel.shared) == (132 if berths else 264, berths)
            assert one.verification("narrow", variant) is kernel
            assert driver.calls == ([("attribute", 10, 8, berths)] if berths else [])
            driver.calls.clear()
        assert "-DVARIANT_BERTHS=0" in evolve(variant, has_room=False).macros


def test_a_device_says_how_much_memory_its_processors_have(
    monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.api.driver", driver)
    given = {"multi_processor_count": 58, "shared_memory_per_multiprocessor": 102_400}
    properties = SimpleNamespace(major=8, minor=9, **given)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    opened = Device.open(3, device().compiled)
    assert (opened.index, opened.architecture) == (3, 89)
    assert (opened.num_multiprocessors, opened.shared_memory) == (58, 102_400)


@pytest.mark.parametrize(("kilobytes", "num_ctas"), [(100, 264), (228, 132)])
@pytest.mark.usefixtures("driver")
def test_the_narrow_kernel_is_launched_for_its_own_room(kilobytes: int, num_ctas: int) -> None:
    """The driver of this test has room for one CTA a processor that asks for memory."""
    variant = next(variant for variant in all_variants() if variant.berths)
    extent = Extent(2000, 3, 8000, 151_936, 151_936)
    job: Any = SimpleNamespace(variant=variant, extent=extent, has_whole_vectors=True)
    shape = CupySampler()._shape(device(kilobytes * 1024), job)
    assert shape == LaunchShape(0, num_ctas)


def test_berths_are_for_filtered_laws_of_two_models_in_bfloat16() -> None:
    for variant in (variant for variant in all_variants() if variant.berths):
        assert variant.policy is KernelPolicy.PROBABILISTIC
        assert variant.filtered
        assert not variant.adjusted
        assert not variant.greedy
        assert variant.draft is variant.target is torch.bfloat16


class Interrupted:
    """A kernel during whose launch somebody presses Ctrl-C."""

    def launch(self, *_: object) -> None:
        raise KeyboardInterrupt


def test_nobody_finds_what_an_interrupted_step_has_left(driver: Driver) -> None:
    sampler = CupySampler()
    extent = Extent(num_reqs=1, max_spec_len=1, num_logits=2, vocab_size=600)
    halfway, others = (Workspace.for_extent(extent, torch.device("cpu")) for _ in range(2))
    sampler._workspaces.update({(0, 5): halfway, (0, 6): others})
    launches: Any = [(device().kernel("pieces", ()), (8, 1, 1)), (Interrupted(), (1, 1, 1))]
    with pytest.raises(KeyboardInterrupt):
        sampler._enqueue(launches, 0, 5, array("Q", [0, 0]))
    assert len(driver.calls) == 1
    assert sampler._workspaces == {(0, 6): others}
    # The first launch, or a graph, may still work in it.
    assert sampler._outgrown == [halfway]


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

    kernel = device().kernel("narrow", ())
    monkeypatch.setattr(torch.cuda, "device", entering)
    CupySampler()._enqueue([(kernel, (7, 1, 1))], index, 5, array("Q", [0, 0]))
    assert len(driver.calls) == 1
    assert entered == [1] * index
