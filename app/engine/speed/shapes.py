"""The shapes of Llama 3 8B and Llama 3.2 1B, with random weights: speed needs no others.

This module refuses to say anything about acceptance.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

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


def make_model(shape: dict[str, Any], seed: int, device: torch.device | str) -> TransformerModel:
    """A model of a shape, bfloat16."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "config.json"
        file.write_text(json.dumps(shape), encoding="utf-8")
        return random_model(file, dtype=torch.bfloat16, device=device, seed=seed)
