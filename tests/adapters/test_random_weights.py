"""Models of a real shape with random weights."""

import json
from pathlib import Path

import pytest
import torch

from acceptor.adapters.random_weights import random_model

SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
    "eos_token_id": 3,
}


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "of-another-name.json"
    path.write_text(json.dumps(SHAPE), encoding="utf-8")
    return path


def logits(config_file: Path, seed: int = 0) -> torch.Tensor:
    model = random_model(config_file, seed=seed)
    tokens = torch.tensor([[1, 5, 7]])
    return model.forward(tokens, torch.arange(3)[None], model.new_cache(1, 8)).logits


def test_it_has_the_shape_of_the_config(config_file: Path) -> None:
    model = random_model(config_file, max_model_len=20)
    assert (model.vocab_size, model.max_model_len, model.dtype) == (61, 20, torch.float32)
    assert model.config.eos_token_ids == (3,)
    scores = logits(config_file)
    assert scores.shape == (1, 3, 61)
    assert scores.isfinite().all()
    assert scores.std() > 0


def test_a_seed_gives_the_same_weights_again(config_file: Path) -> None:
    assert torch.equal(logits(config_file, seed=1), logits(config_file, seed=1))
    assert not torch.equal(logits(config_file, seed=1), logits(config_file, seed=2))
