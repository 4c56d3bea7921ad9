"""Tensors that no kernel can reach are refused by name."""

import pytest
import torch

from acceptor.core import InvalidInputError, SampleBatch, Strict, UnavailableError
from kit.batches import dense, stacked

triton_backend = pytest.importorskip("acceptor.backends.triton_backend")


def test_memory_of_the_host_is_refused() -> None:
    sampler = triton_backend.TritonSampler()
    params, batch = stacked(1), dense(torch.zeros(1, 2, 5))
    expected = "expected a CUDA device, or TRITON_INTERPRET=1 to simulate one, got cpu"
    with pytest.raises(InvalidInputError, match=f"^target_logits: {expected}$"):
        sampler.verify(batch, params, Strict())
    with pytest.raises(InvalidInputError, match=f"^logits: {expected}$"):
        sampler.sample(SampleBatch(logits=torch.zeros(1, 5), positions=batch.positions), params)


def test_an_old_device_is_refused_by_its_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    device = pytest.importorskip("acceptor.backends.triton_backend.device")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    expected = "backend triton: expected compute capability 8.0 or newer, got 7.5 on cuda:1"
    with pytest.raises(UnavailableError, match=f"^{expected}$"):
        device.check_reachable("logits", torch.device("cuda", 1))


def test_an_old_driver_is_named() -> None:
    launch = pytest.importorskip("acceptor.backends.triton_backend.launch")

    class Kernel:
        def __init__(self, said: str) -> None:
            self.said = said

        def __getitem__(self, _: object) -> object:
            def run() -> None:
                raise RuntimeError(self.said)

            return run

    too_old = "Triton Error [CUDA]: the provided PTX was compiled with an unsupported toolchain"
    with pytest.raises(UnavailableError, match=r"^backend triton: expected a driver .*toolchain$"):
        launch.start(Kernel(too_old), (1,))
    for said in ("Triton Error [CUDA]: out of memory", "something else"):
        with pytest.raises(RuntimeError, match=r"out of memory|something else"):
            launch.start(Kernel(said), (1,))
