"""The shapes of public pairs at tiny sizes."""

import json
from pathlib import Path
from typing import Any

from acceptor.app.bench import public_pairs

TINY: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "moe_intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "vocab_size": 61,
    "draft_vocab_size": 23,
    "sliding_window": 5,
}


def shrunk(shape: dict[str, Any]) -> dict[str, Any]:
    """A config.json with small numbers."""
    small = {name: TINY.get(name, value) for name, value in shape.items()}
    if shape["model_type"] == "glm4_moe_lite":
        small["num_key_value_heads"] = small["num_attention_heads"]
    return small


def write_tiny_shapes(folder: Path) -> None:
    """Under the names that the real ones have."""
    for file in public_pairs._SHAPES.glob("*.json"):
        shape = json.loads(file.read_text(encoding="utf-8"))
        if "transformer_layer_config" in shape:
            layer = shrunk(shape["transformer_layer_config"])
            shape |= {"draft_vocab_size": 23, "transformer_layer_config": layer}
        else:
            shape = shrunk(shape)
        (folder / file.name).write_text(json.dumps(shape), encoding="utf-8")
