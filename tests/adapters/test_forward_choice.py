"""The forward that was asked for computes, or an error says why it cannot."""

import logging
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from acceptor.adapters import forward_choice, load_model
from acceptor.adapters.forward_choice import choose_kernels, why_no_triton
from acceptor.core import UnavailableError

CUDA = torch.device("cuda")


@pytest.mark.parametrize("forward", ["auto", "torch"])
def test_a_cpu_computes_with_torch(tiny_llama: Path, forward: str) -> None:
    model = load_model(tiny_llama, forward=forward)
    assert model.forward_name == model.first_layers(1).forward_name == "torch"


def test_what_triton_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_choice, "has_c_compiler", lambda: False)
    if find_spec("triton") is not None:
        assert "expected a C compiler" in str(why_no_triton(CUDA))
    monkeypatch.setattr(forward_choice, "find_spec", lambda name: None)  # noqa: ARG005
    assert "expected Triton, got none" in str(why_no_triton(CUDA))


def test_a_failed_compile_is_an_error_only_where_triton_was_asked_for(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = pytest.importorskip("acceptor.adapters.few_tokens.tiling")
    forward = pytest.importorskip("acceptor.adapters.few_tokens.forward")
    model = load_model(tiny_llama, dtype=torch.bfloat16)
    angles = torch.zeros(64, 2, 32, dtype=torch.bfloat16)

    def fail(_: object) -> None:
        raise RuntimeError("ptxas:\nno such architecture")

    monkeypatch.setattr(forward_choice, "why_no_triton", lambda device: None)  # noqa: ARG005
    monkeypatch.setattr(gpu.Gpu, "of", lambda device: None)  # noqa: ARG005
    monkeypatch.setattr(forward.FewTokens, "of", lambda *args: args)
    monkeypatch.setattr(forward_choice, "_try_out", fail)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    message = "forward triton: expected kernels that compile and run, got ptxas: no such arch"
    with pytest.raises(UnavailableError, match=message):
        choose_kernels("triton", model.decoder, angles)
    with caplog.at_level(logging.INFO):
        assert choose_kernels("auto", model.decoder, angles) is None
    assert "no such architecture" in caplog.text
    full = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    monkeypatch.setattr(forward_choice, "_try_out", full)
    with pytest.raises(torch.OutOfMemoryError):
        choose_kernels("auto", model.decoder, angles)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (torch.float32, "expected bfloat16 or float16, got float32"),
        (torch.float16, "expected matrices of multiples of 16, got 40"),
    ],
)
def test_models_that_kernels_do_not_know(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, message: str
) -> None:
    gpu = pytest.importorskip("acceptor.adapters.few_tokens.tiling")
    monkeypatch.setattr(forward_choice, "why_no_triton", lambda device: None)  # noqa: ARG005
    monkeypatch.setattr(gpu.Gpu, "of", lambda device: None)  # noqa: ARG005
    model = load_model(tiny_llama, dtype=dtype)
    angles = torch.zeros(64, 2, 8, dtype=dtype)
    with pytest.raises(UnavailableError, match=f"forward triton: {message}"):
        choose_kernels("triton", model.decoder, angles)
