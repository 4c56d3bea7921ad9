"""Tiny configs of families that transformers computes, with windows that rejections cross."""

from typing import Any

from transformers import (
    Gemma3TextConfig,
    Glm4MoeLiteConfig,
    GptOssConfig,
    LlamaConfig,
    PretrainedConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

VOCAB_SIZE = 61
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
MIXED: dict[str, Any] = {
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "v_head_dim": 10}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}

FAMILIES: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, **MIXED, head_dim=10, use_sliding_window=True),
    "gpt-oss": GptOssConfig(
        **SHAPE, **MIXED, head_dim=12, num_local_experts=4, num_experts_per_tok=2
    ),
    "qwen3-moe": Qwen3MoeConfig(
        **SHAPE, **EXPERTS, num_experts=4, use_sliding_window=True, sliding_window=6
    ),
    "gemma3": Gemma3TextConfig(**SHAPE, **MIXED, head_dim=8),
    "glm4-moe-lite": Glm4MoeLiteConfig(
        **SHAPE | {"num_key_value_heads": 4},
        **LATENT,
        **EXPERTS,
        qk_rope_head_dim=4,
        n_routed_experts=4,
        n_shared_experts=1,
    ),
}
