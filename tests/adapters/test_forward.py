"""The forward: which one is chosen, and that it agrees with transformers."""

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from acceptor.adapters import TransformerModel, forward_choice, load_model
from acceptor.adapters.forward_choice import choose_kernels, why_no_triton
from acceptor.core import UnavailableError
from kit.shapes import TINY

CUDA = torch.device("cuda")


@pytest.mark.parametrize("forward", ["auto", "torch"])
def test_a_cpu_computes_with_torch(tiny_llama: Path, forward: str) -> None:
    model = load_model(tiny_llama, forward=forward)
    assert model.forward_name == model.first_layers(1).forward_name == "torch"


def test_what_triton_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)  # noqa: ARG005
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


SHAPE: dict[str, Any] = TINY | {"num_hidden_layers": 3, "max_position_embeddings": 128}
LAYER_TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
WINDOW = {"use_sliding_window": True, "sliding_window": 7}

CONFIGS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SHAPE),
    "llama, biases": LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    "mistral, window": MistralConfig(**SHAPE, sliding_window=9),
    "qwen2, mixed layers": Qwen2Config(**SHAPE, **WINDOW, layer_types=LAYER_TYPES),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16),
}
NUM_TOKENS = 100
TOKEN_IDS = torch.randint(61, (3, NUM_TOKENS), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=CONFIGS)
def pair(
    request: pytest.FixtureRequest, save: Callable[..., Any]
) -> tuple[TransformerModel, Tensor]:
    """Our model, and the reference's logits [3, NUM_TOKENS, vocab_size] of TOKEN_IDS."""
    saved = save(CONFIGS[request.param])
    return load_model(saved.directory), reference_logits(saved.reference)


def reference_logits(model: Any) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(TOKEN_IDS, use_cache=False).logits
    return logits


def assert_close(got: Tensor, want: Tensor, tolerance: float = 1e-4) -> None:
    assert (got.float() - want.float()).abs().max() / want.abs().max() <= tolerance


def chunks(lengths: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for length in lengths:
        yield start, min(start + length, NUM_TOKENS)
        start += length


def feed(
    model: TransformerModel, token_ids: Tensor, lengths: list[int], slot_ids: Tensor | None
) -> Tensor:
    """Logits of all tokens in chunks of these lengths, each after a longer, rejected draft."""
    cache = model.new_cache(4, NUM_TOKENS)
    parts = []
    for start, stop in chunks(lengths):
        draft = torch.arange(start, min(stop + 3, NUM_TOKENS)).expand(len(token_ids), -1)
        model.forward(token_ids.roll(1, 0)[:, draft[0]], draft, cache, slot_ids)
        positions = draft[:, : stop - start]
        parts.append(model.forward(token_ids[:, start:stop], positions, cache, slot_ids).logits)
    return torch.cat(parts, 1)


def test_several_slots_in_chunks(pair: tuple[TransformerModel, Tensor]) -> None:
    model, want = pair
    lengths = [5, 1, 17, 2, 40, 35]
    for slots in (None, [1, 2, 3], [2, 3, 1], [3, 0, 2]):
        slot_ids = None if slots is None else torch.tensor(slots)
        assert_close(feed(model, TOKEN_IDS, lengths, slot_ids), want)


def test_requests_at_different_positions(pair: tuple[TransformerModel, Tensor]) -> None:
    model, want = pair
    cache, starts = model.new_cache(3, NUM_TOKENS), torch.tensor([60, 3, 25])
    for slot, start in enumerate(starts):
        positions = torch.arange(int(start))[None]
        model.forward(TOKEN_IDS[slot : slot + 1, :start], positions, cache, torch.tensor([slot]))
    positions = starts[:, None] + torch.arange(4)
    token_ids = TOKEN_IDS.gather(1, positions)
    got = model.forward(token_ids, positions, cache).logits
    assert_close(got, want[torch.arange(3)[:, None], positions])
    last = model.forward(token_ids, positions, cache, last_only=True, max_position=90).logits
    assert_close(last, got[:, -1:], 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_checkpoints(save: Callable[..., Any], dtype: torch.dtype) -> None:
    directory = save(CONFIGS["qwen3"], dtype).directory
    for load_dtype, tolerance in ((dtype, 0.05), (None, 1e-4)):
        model = load_model(directory, dtype=load_dtype)
        assert model.dtype == (load_dtype or torch.float32)
        reference = AutoModelForCausalLM.from_pretrained(directory, dtype=model.dtype)
        assert_close(feed(model, TOKEN_IDS, [60, 40], None), reference_logits(reference), tolerance)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_taps_are_the_hidden_states_of_the_reference(save: Callable[..., Any], name: str) -> None:
    saved = save(CONFIGS[name])
    model = load_model(saved.directory)
    with torch.inference_mode():
        want = saved.reference(TOKEN_IDS, use_cache=False, output_hidden_states=True).hidden_states
    positions = torch.arange(NUM_TOKENS).expand(len(TOKEN_IDS), -1)
    taps = (3, 0, 2, 1, 2)
    got = model.forward(
        TOKEN_IDS, positions, model.new_cache(3, NUM_TOKENS), last_only=True, taps=taps
    )
    # The reference's last one is after the final norm.
    hidden = dict(zip(taps, got.hidden, strict=True))
    hidden[3] = model.decoder.norm(hidden[3])
    for tap, states in hidden.items():
        assert states.shape == (*TOKEN_IDS.shape, model.config.hidden_size)
        assert_close(states, want[tap])
