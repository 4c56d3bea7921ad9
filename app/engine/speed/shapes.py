"""The shapes of Llama 3 8B and Llama 3.2 1B, with random weights: speed needs no others.

This module refuses to say anything about acceptance.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ....adapters.language_model import TransformerModel
from ....adapters.random_weights import random_model

CONTEXT = 2048

_COMMON: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "max_position_embeddings": CONTEXT,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
TARGET: dict[str, Any] = {
    **_COMMON,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "tie_word_embeddings": False,
}
DRAFT: dict[str, Any] = {
    **_COMMON,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "tie_word_embeddings": True,
}
SEEDS = {"target": 0, "draft": 1}

_TINY: dict[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@frozen(kw_only=True)
class Sizes:
    """What is measured.

    Attributes:
        target, draft: shapes of the models, as config.json has them.
        prompt_len, output_len: tokens of each request.
        steps_of_one: at least, where one request is served at a time.
        several: requests at once, besides one.
        lengths: of what attention is timed over.
        num_copies: of an operand at most, so that none is still in a cache.
        bandwidth_mib: how much memory is read to see how fast.
    """

    target: dict[str, Any]
    draft: dict[str, Any]
    prompt_len: int
    output_len: int
    steps_of_one: int
    several: int
    lengths: tuple[int, ...]
    num_copies: int
    bandwidth_mib: int

    @property
    def shapes(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Of both models, with their names."""
        return ("target", self.target), ("draft", self.draft)


LARGE = Sizes(
    target=TARGET,
    draft=DRAFT,
    prompt_len=128,
    output_len=256,
    steps_of_one=1000,
    several=16,
    lengths=(384, 2000),
    num_copies=24,
    bandwidth_mib=4096,
)
REHEARSAL = Sizes(
    target=TARGET | _TINY,
    draft=DRAFT | _TINY,
    prompt_len=8,
    output_len=12,
    steps_of_one=20,
    several=3,
    lengths=(16,),
    num_copies=2,
    bandwidth_mib=1,
)


def make_model(shape: dict[str, Any], seed: int, device: torch.device | str) -> TransformerModel:
    """A model of a shape, bfloat16."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "config.json"
        file.write_text(json.dumps(shape), encoding="utf-8")
        return random_model(file, dtype=torch.bfloat16, device=device, seed=seed)
