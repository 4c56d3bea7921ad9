"""Any config gives transformers' logits or is refused by name."""

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from acceptor.adapters import ModelConfig, load_model
from acceptor.core import AcceptorError
from kit.shapes import TINY
from kit.small_families import random_model

BASE: dict[str, Any] = TINY | {"head_dim": 4}
NAMES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPES: list[Any] = [
    None,
    {},
    {"rope_theta": 50.0},
    {"rope_type": "default", "rope_theta": 20.0},
    {"type": "linear", "factor": 3.0},
    {"rope_type": "linear", "type": "dynamic", "factor": 2.0, "rope_theta": 30.0},
    {"rope_type": "dynamic", "factor": 2.0},
    LLAMA3 | {"original_max_position_embeddings": 16},
    LLAMA3 | {"original_max_position_embeddings": 8, "rope_theta": 100.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {"type": "yarn", "factor": 2.0, "beta_fast": 16.0, "beta_slow": 2.0, "rope_theta": 40.0},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.7, "truncate": False},
    {"rope_type": "longrope", "factor": 2.0},
    "linear",
]
VALUES: dict[str, list[Any]] = {
    "rope_parameters": ROPES,
    "rope_scaling": ROPES,
    "rope_theta": [25.0, 1e6, 1.0, None],
    "original_max_position_embeddings": [16, 32],
    "partial_rotary_factor": [1.0, 0.5],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "tie_word_embeddings": [True, False],
    "rms_norm_eps": [1e-3, 1e-6],
    "hidden_act": ["silu", "gelu"],
    "sliding_window": [5, None],
    "use_sliding_window": [True, False],
    "max_window_layers": [0, 1, 2],
    "layer_types": [["sliding_attention", "full_attention"], ["full_attention"] * 2],
    "num_key_value_heads": [1, 4],
    "head_dim": [8, 4, None],
}
NUM_TOKENS = 40
NUM_SERVED = (18, 21, 16, 23, 17, 15, 14, 21)
"""Of each thirty: to refuse one more is a mistake, too."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("part", "num_served"), [*enumerate(NUM_SERVED)])
def test_any_config_gives_the_reference_s_logits_or_is_refused(
    part: int, num_served: int, tmp_path: Path
) -> None:
    assert sum(agrees(seed, tmp_path) for seed in range(30 * part, 30 * part + 30)) >= num_served


def agrees(seed: int, directory: Path) -> bool:
    """Whether there were logits to compare, which are the same."""
    random = Random(seed)  # noqa: S311, no secret
    kind = random.choice(list(NAMES))
    names = random.sample(list(VALUES), random.randint(1, 4))
    names += ["rope_parameters", "rope_scaling"] if random.random() < 0.3 else []
    changes = {name: random.choice(VALUES[name]) for name in names}
    config = {"model_type": kind, "architectures": [f"{NAMES[kind]}ForCausalLM"]} | BASE | changes
    file = directory / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    try:
        # Weights so large that positions matter to the logits.
        reference: Any = random_model(AutoConfig.from_pretrained(directory), scale=2.0)
    except Exception:  # noqa: BLE001, whatever it raises
        # There is nothing to compare with, but an error of ours is still one that names the field.
        with suppress(AcceptorError):
            ModelConfig.read(directory / "config.json")
        return False
    reference.save_pretrained(directory)
    file.write_text(json.dumps(config), encoding="utf-8")
    try:
        model = load_model(directory)
    except AcceptorError:
        return False
    token_ids = torch.randint(61, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        want = reference(token_ids, use_cache=False).logits
    positions = torch.arange(NUM_TOKENS)[None]
    got = model.forward(token_ids, positions, model.new_cache(1, NUM_TOKENS)).logits
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))
    return True
