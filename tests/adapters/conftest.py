"""Tiny checkpoints with random weights, written by transformers, the independent reference."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from attrs import frozen
from transformers import PretrainedConfig, PreTrainedModel

transformers.utils.logging.disable_progress_bar()


@frozen
class Saved:
    """A checkpoint directory and the model that wrote it, in evaluation mode, float32."""

    directory: Path
    reference: PreTrainedModel


def random_model(config: PretrainedConfig) -> PreTrainedModel:
    """Weights far from the usual initial ones, so that every one of them matters."""
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            spread = 0.3 if parameter.dim() == 1 else parameter.shape[1] ** -0.5
            parameter.copy_(noise * spread + (1.0 if parameter.mean() == 1 else 0.0))
    return model


@pytest.fixture(scope="session")
def save(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Saved]:
    """Make a random model of a config and save it; further arguments go to save_pretrained."""

    def make(config: PretrainedConfig, dtype: torch.dtype = torch.float32, **how: object) -> Saved:
        directory = tmp_path_factory.mktemp("checkpoint")
        model = random_model(config).to(dtype)
        model.save_pretrained(directory, **how)
        return Saved(directory, model)

    return make


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., transformers.LlamaConfig]:
    """A Llama config small enough for one test; keywords change it."""

    def make(**changes: object) -> transformers.LlamaConfig:
        shape = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 40}
        counts = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
        positions = {"max_position_embeddings": 64}
        return transformers.LlamaConfig(**shape | counts | positions | changes)

    return make
