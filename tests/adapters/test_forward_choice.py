"""Which forward is chosen, and that torch.compile serves any number of tokens with two graphs."""

import logging
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from attrs import evolve

from acceptor.adapters import forward_choice, fusion, load_model
from acceptor.adapters.forward_choice import choose_kernels, why_no_triton
from acceptor.adapters.transformer import LayerOperations
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


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the compiler was given; it runs as it is, without generating code."""
    seen: list[Any] = []

    def run_as_it_is(graph: Any, example_inputs: Any) -> Any:  # noqa: ARG001, a backend's arguments
        seen.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=run_as_it_is))
    return seen


@pytest.mark.slow
def test_any_number_of_tokens_is_compiled_twice_at_most(
    tiny_llama: Path, graphs: list[Any]
) -> None:
    plain = load_model(tiny_llama)
    fused = evolve(plain)
    operations: LayerOperations = fusion.fused_operations.__wrapped__()
    object.__setattr__(fused, "planner", evolve(fused.planner, operations=operations))
    caches = [model.new_cache(4, 16) for model in (plain, fused)]
    for num_reqs, num_tokens in ((1, 1), (1, 4), (1, 2), (4, 1), (3, 4), (4, 2)):
        token_ids = torch.randint(0, 61, (num_reqs, num_tokens))
        positions = torch.arange(3, 3 + num_tokens).expand(num_reqs, -1).contiguous()
        slots = torch.arange(num_reqs)
        with torch.inference_mode():
            expected, got = (
                model.forward(token_ids, positions, cache, slots).logits
                for model, cache in zip((plain, fused), caches, strict=True)
            )
        assert torch.equal(got, expected)
    # Each of three operations, for one token and for several; all layers share them.
    assert len(graphs) == 6
