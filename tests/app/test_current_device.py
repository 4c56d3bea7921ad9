"""Steps run on the target's device, whatever device and thread the caller is in."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import pytest
import torch
from attrs import define, field

from acceptor.app.bench.kernels.measure import Bench
from acceptor.app.bench.kernels.stopwatch import Stopwatch
from acceptor.app.bench.kernels.workload import Workload
from acceptor.app.current_device import current_device
from acceptor.app.engine.engine import Engine
from acceptor.app.request import Progress

SECOND = torch.device("cuda", 1)


class Devices(local):
    """The current CUDA device of each thread: the first one until another is made current."""

    current = 0

    @contextmanager
    def within(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, device.index
        yield
        self.current = before


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    made = Devices()
    monkeypatch.setattr(torch.cuda, "device", made.within)
    return made


@define(eq=False)
class Loop:
    """Stands for an engine's loop on the second device, and notes which one is current."""

    devices: Devices
    device: torch.device = SECOND
    seen: list[int] = field(factory=list)
    num_left: int = 2

    def has_unfinished(self) -> bool:
        return self.num_left > 0

    def admit_and_retire(self) -> None:
        self.seen.append(self.devices.current)

    def enter_prompts(self) -> None:
        self.seen.append(self.devices.current)

    def decode(self) -> None:
        self.seen.append(self.devices.current)
        self.num_left -= 1

    def notify(self) -> Iterable[Progress]:
        return ()


def test_a_step_runs_on_the_target_s_device(devices: Devices) -> None:
    loop = Loop(devices)
    engine = Engine(loop)  # type: ignore[arg-type]
    engine.step()
    assert (loop.seen, devices.current) == ([1, 1, 1], 0)


def test_so_do_the_steps_of_a_stream_in_their_thread(devices: Devices) -> None:
    loop = Loop(devices)
    engine = Engine(loop)  # type: ignore[arg-type]

    async def drive() -> None:
        await engine._streams._run(engine)

    asyncio.run(drive())
    assert loop.seen == [1] * 6


@pytest.mark.parametrize(("name", "current"), [("cpu", 0), ("cuda:1", 1), ("cuda:0", 0)])
def test_a_cpu_leaves_the_current_device_alone(devices: Devices, name: str, current: int) -> None:
    devices.current = 0
    with current_device(torch.device(name)):
        assert devices.current == current


def test_kernels_are_measured_on_their_device(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "_random_logits", lambda *_: [devices.current])
    monkeypatch.setattr(Bench, "_line", lambda *_: devices.current)
    bench = Bench(backends=(), stopwatch=Stopwatch(SECOND, 1, torch.empty(0)))
    workload = Workload(num_reqs=1, num_spec_tokens=1, vocab_size=32)
    lines: Any = bench.run([workload], lambda _: None)
    assert lines == (1,)
