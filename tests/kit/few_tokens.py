"""Compares the kernels for few tokens, in Triton's interpreter, with torch's operations.

`python -m kit.interpreted kit.few_tokens` prints the largest differences and fails on any that
rounding does not explain. A process of its own, because the interpreter must be chosen before
Triton is imported.
"""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from attrs import evolve
from torch import Tensor

from acceptor.adapters.few_tokens import attend, tiling
from acceptor.adapters.few_tokens import forward as few
from acceptor.adapters.few_tokens.tiling import Gpu
from acceptor.adapters.kv_cache import Places
from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.model_config import ModelConfig
from acceptor.adapters.rope import Rope
from acceptor.adapters.weights import RandomTensors, WeightReader, expected_tensors

MAX_LEN = 96
NUM_SLOTS = 5
TOLERANCE = 2e-5
TAPS = (2, 0, 1)
SIZES: dict[str, Any] = {
    **dict.fromkeys(("MATRIX_DEPTH", "FEWEST_DEPTH", "LEAST_DEPTH"), 16),
    **dict.fromkeys(("NARROW", "SHORT"), tiling.Block(rows=16, depth=16, warps=4, stages=3)),
    "WIDE": tiling.Block(rows=32, depth=16, warps=8, stages=4),
    "TALL": tiling.Block(rows=64, depth=16, warps=8, stages=4),
    "ADDED": tiling.Block(rows=16, depth=32, warps=4, stages=3),
    "MANY_TOKENS": 32,
}
"""Small, so that small models have several of everything."""

GPU = Gpu(num_processors=6, shared_memory=227 * 1024, prefetches=False, overlaps=False)
EVEN = SIZES | {"SHARE": 4}, evolve(GPU, num_processors=4)
"""With these, tiles have 12 of 16 rows, or 24 of 32, and some programs take two."""


class Weights(RandomTensors):
    """Random ones, of a size at which all of them matter."""

    def tensor(self, name: str) -> Tensor:
        shape = self.shapes[name]
        spread = 0.3 if len(shape) == 1 else shape[1] ** -0.5
        return torch.randn(shape) * spread + (1.0 if name.endswith("norm.weight") else 0.0)


def model_of(
    architecture: str, window: int | None, dtype: torch.dtype = torch.float32
) -> TransformerModel:
    """Two layers; its matrices lie as on a GPU."""
    config = ModelConfig(
        vocab_size=48,
        hidden_size=48,
        intermediate_size=96,
        num_heads=4,
        num_kv_heads=2,
        max_position_embeddings=MAX_LEN,
        rms_norm_eps=1e-5,
        rope=Rope(head_dim=32, theta=1e4),
        windows=(None, window),
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), architecture == "biased"),
        qk_norm=architecture == "normalised heads",
        tie_word_embeddings=False,
        dtype=None,
        eos_token_ids=(),
    )
    cpu = torch.device("cpu")
    weights = Weights(Path(), expected_tensors(config), dtype, cpu, seed=0)
    with patch.object(WeightReader, "_empty", lambda _, *shape: torch.empty(shape, dtype=dtype)):
        decoder = WeightReader(weights, config, dtype, cpu).decoder()
    return TransformerModel(config, decoder, MAX_LEN)


def difference(
    model: TransformerModel,
    starts: list[int],
    num_tokens: int,
    splits: int,
    products: dict[str, Any],
    gpu: Gpu,
    *,
    last_only: bool,
) -> float:
    """The largest difference of logits, of hidden states and of the cache afterwards."""
    caches = [model.new_cache(NUM_SLOTS, MAX_LEN) for _ in range(2)]
    for layers in zip(*(cache.layers for cache in caches), strict=True):
        layers[0].normal_()
        layers[1].copy_(layers[0])
    positions = torch.tensor(starts)[:, None] + torch.arange(num_tokens)
    positions.clamp_(max=MAX_LEN - 1)
    # Not contiguous, as a step's first tokens are not.
    token_ids = torch.randint(0, 48, (num_tokens, len(starts))).t()
    slot_ids = torch.randperm(NUM_SLOTS)[: len(starts)]
    programs = splits * len(starts) * 2
    cut = evolve(attend.FEW, programs=1, block=16, least=1 + num_tokens % 2)
    angles = model.config.rope.table(MAX_LEN)
    with (
        patch.multiple(tiling, **products),
        patch.object(attend, "SMALL_HEADS", cut),
        torch.inference_mode(),
    ):
        kernels = few.FewTokens.of(model.decoder, angles, gpu)
        attending = attend.Attend.of(angles, 2, evolve(gpu, num_processors=programs))
        kernels = evolve(kernels, attend=attending)
        how: dict[str, Any] = {"last_only": last_only, "taps": TAPS}
        want = model.forward(token_ids, positions, caches[0], slot_ids, **how)
        attends = kernels.attention_at(positions, slot_ids)
        if attends is None:
            limits = model.vocab_size, MAX_LEN
            places = Places.of(token_ids, positions, slot_ids, caches[1], limits, MAX_LEN - 1)
            attends = model.planner.plan(places)
        got = kernels.forward(token_ids, attends, caches[1], **how)
        worst = 0.0
        for one, other in zip((want.logits, *want.hidden), (got.logits, *got.hidden), strict=True):
            assert one.shape == other.shape
            worst = max(worst, float((one - other).abs().max() / one.abs().max()))
        assert not kernels.attend.counts.any()
        assert not kernels.counts.any()
    for one, other in zip(*(cache.layers for cache in caches), strict=True):
        worst = max(worst, float((one - other).abs().max()))
    return worst


CASES: tuple[tuple[str, int | None, list[int], int, int], ...] = (
    ("plain", None, [0], 1, 1),
    ("biased", 20, [70], 2, 3),
    ("normalised heads", None, [5, 64, 90], 2, 3),
    ("biased", 20, [0, 33], 3, 1),
    ("biased", None, [3, 50, 70], 4, 1),
    ("normalised heads", 20, [8, 20, 41, 60], 6, 1),
    ("plain", None, [3, 20, 41, 60, 88], 4, 2),
    ("biased", None, [3, 50, 70], 11, 1),
    ("plain", 20, [8, 20, 41, 60], 16, 1),
)
"""Architecture, window of the second layer, first positions, tokens of each, parts of attention."""


def main() -> int:
    """Run all cases; returns the number of those that differ."""
    torch.manual_seed(0)
    failures = 0
    for number, (architecture, window, starts, num_tokens, splits) in enumerate(CASES):
        many = len(starts) * num_tokens > tiling.MATRIX_TOKENS
        for place, sizes in enumerate(((SIZES, GPU), EVEN) if many else ((SIZES, GPU),)):
            model, last_only = model_of(architecture, window), (number + place) % 2 == 0
            found = difference(model, starts, num_tokens, splits, *sizes, last_only=last_only)
            sys.stdout.write(f"{architecture}, {window}, {starts}, {num_tokens}: {found:.1e}\n")
            failures += found > TOLERANCE
    return failures


if __name__ == "__main__":
    sys.exit(main())
