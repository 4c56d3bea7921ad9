"""Tiny models of families that transformers computes, with windows that rejections cross."""

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    Glm4MoeLiteConfig,
    GptOssConfig,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
)

from kit.shapes import EXPERTS, LATENT, TINY

VOCAB_SIZE: int = TINY["vocab_size"]
SHAPE: dict[str, Any] = TINY | {"intermediate_size": 32, "num_hidden_layers": 4}
SHAPE |= {"max_position_embeddings": 128, "pad_token_id": 0, "eos_token_id": 1}
MIXED: dict[str, Any] = {
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}

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


def random_model(config: PretrainedConfig, scale: float = 1.0) -> PreTrainedModel:
    """Weights far from the usual initial ones, so that every one of them matters."""
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            spread = 0.3 if parameter.dim() == 1 else scale * parameter.shape[1] ** -0.5
            parameter.copy_(noise * spread + (1.0 if parameter.mean() == 1 else 0.0))
    return model
