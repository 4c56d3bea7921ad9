"""Steps run on the target's device, whatever device and thread the caller is in."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from unittest.mock import MagicMock

import pytest
import torch

from acceptor.app.current_device import current_device
from acceptor.app.engine.engine import Engine

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


def test_a_step_runs_on_the_target_s_device(devices: Devices) -> None:
    """In the thread of a stream, too."""
    seen: list[int] = []
    loop = MagicMock(device=SECOND, notify=lambda: ())
    for part in (loop.admit_and_retire, loop.enter_prompts, loop.decode):
        part.side_effect = lambda: seen.append(devices.current)
    loop.has_unfinished = lambda: len(seen) < 6
    engine = Engine(loop)
    engine.step()
    assert (seen, devices.current) == ([1, 1, 1], 0)
    asyncio.run(engine._streams._run(engine))
    assert seen == [1] * 6


@pytest.mark.parametrize(("name", "current"), [("cpu", 0), ("cuda:1", 1), ("cuda:0", 0)])
def test_a_cpu_leaves_the_current_device_alone(devices: Devices, name: str, current: int) -> None:
    with current_device(torch.device(name)):
        assert devices.current == current
