"""Sizes of models in config.json's format: tiny ones, Llama 3 8B's and Llama 3.2 1B's."""

import json
from pathlib import Path
from typing import Any

from acceptor.app.bench import public_pairs

HEADS = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
TINY: dict[str, Any] = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, **HEADS}
TINY["max_position_embeddings"] = 64
FOR_KERNELS: dict[str, Any] = {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 384}
FOR_KERNELS |= HEADS
"""Small sizes, with heads and matrices that every kernel takes."""

TARGET: dict[str, Any] = json.loads(public_pairs.PAIRS["llama3-eagle3"].shapes[0].read_text())
TARGET["max_position_embeddings"] = 2048
DRAFT: dict[str, Any] = TARGET | {"hidden_size": 2048, "intermediate_size": 8192}
DRAFT |= {"num_hidden_layers": 16, "tie_word_embeddings": True}

LATENT = {"q_lora_rank": 16, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "v_head_dim": 10}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
OF_PAIRS: dict[str, Any] = TINY | LATENT | EXPERTS | {"draft_vocab_size": 23, "sliding_window": 5}
OF_PAIRS |= {"head_dim": 12, "qk_rope_head_dim": 4, "num_local_experts": 4, "n_routed_experts": 4}
DEPTHS = ("num_hidden_layers", "max_position_embeddings")
"""The fields that public models keep when they are shrunk."""


def shrunk(shape: dict[str, Any]) -> dict[str, Any]:
    """A config.json with small numbers."""
    small = {n: value if n in DEPTHS else OF_PAIRS.get(n, value) for n, value in shape.items()}
    if shape["model_type"] == "glm4_moe_lite":
        small["num_key_value_heads"] = small["num_attention_heads"]
    return small


def write_tiny_pairs(folder: Path) -> None:
    """The shapes of public pairs at tiny sizes, under the names that the real ones have."""
    for file in public_pairs._SHAPES.glob("*.json"):
        shape = json.loads(file.read_text(encoding="utf-8"))
        if "transformer_layer_config" in shape:
            layer = shrunk(shape["transformer_layer_config"])
            shape |= {"draft_vocab_size": 23, "transformer_layer_config": layer}
        else:
            shape = shrunk(shape)
        (folder / file.name).write_text(json.dumps(shape), encoding="utf-8")
