"""A config.json gives the same logits as in transformers, or an error that names the field."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from acceptor.adapters import ModelConfig, load_model
from acceptor.adapters.model_config import MAX_POSITIONS
from acceptor.adapters.rope import Rope
from acceptor.core import AcceptorError, CheckpointError
from kit.checkpoints import edit_json
from kit.shapes import TINY
from kit.small_families import random_model

BASE: dict[str, Any] = {name: size for name, size in TINY.items() if name != "num_key_value_heads"}
BASE |= {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3}
BASE["architectures"] = ["LlamaForCausalLM"]
MISTRAL = {"architectures": ["MistralForCausalLM"]}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"]}
FULL, SLIDING = "full_attention", "sliding_attention"
LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
LLAMA3 |= {"original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 2}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., ModelConfig]:
    def read(generation: dict[str, Any] | None = None, **changes: object) -> ModelConfig:
        (tmp_path / "config.json").unlink(missing_ok=True)
        edit_json(tmp_path / "config.json", **BASE | changes)
        if generation is not None:
            edit_json(tmp_path / "generation_config.json", **generation)
        return ModelConfig.read(tmp_path / "config.json")

    return read


def test_defaults_are_those_of_transformers(read: Callable[..., ModelConfig]) -> None:
    config = read()
    assert config.num_layers == 3
    assert (config.num_kv_heads, config.head_dim) == (4, 6)
    assert config.rope == Rope(head_dim=6, theta=10_000.0)
    assert config.rms_norm_eps == 1e-6
    assert config.windows == (None, None, None)
    assert not config.tie_word_embeddings
    assert config.dtype is None
    assert config.eos_token_ids == ()


@pytest.mark.parametrize("spelling", ["dtype", "torch_dtype"])
def test_both_spellings_of_the_dtype(read: Callable[..., ModelConfig], spelling: str) -> None:
    assert read(**{spelling: "bfloat16"}).dtype == torch.bfloat16


def test_yarn_stretches_the_context(read: Callable[..., ModelConfig]) -> None:
    assert read(rope_scaling={"rope_type": "yarn", "factor": 4.0}).max_position_embeddings == 256
    longest = read(rope_scaling={"rope_type": "yarn", "factor": 1e9})
    assert longest.max_position_embeddings == MAX_POSITIONS


def test_upper_layers_are_windowed(read: Callable[..., ModelConfig]) -> None:
    config = read(**QWEN2, sliding_window=5, use_sliding_window=True, max_window_layers=1)
    assert config.windows == (None, 5, 5)


def test_eos_comes_from_the_generation_config_first(read: Callable[..., ModelConfig]) -> None:
    assert read(eos_token_id=3).eos_token_ids == (3,)
    assert read({}, eos_token_id=3).eos_token_ids == (3,)
    assert read({"eos_token_id": [7, 8]}, eos_token_id=3).eos_token_ids == (7, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures: expected one of Llama.*GPT2"),
        ({"architectures": ...}, "architectures: expected one of .*, got nothing"),
        ({"hidden_size": "24"}, "hidden_size: expected an integer, got '24'"),
        ({"num_hidden_layers": 10**9}, r"num_hidden_layers: .*\[1, 1024\], got 1000000000"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings: .*got 10{12}"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: expected a divisor of 4, got 3"),
        ({"head_dim": 7}, "head_dim: expected an even number, got 7"),
        ({"rms_norm_eps": 10**400}, r"rms_norm_eps: expected a number in .*, got 10{200,} …$"),
        ({"tie_word_embeddings": "yes"}, 'tie_word_embeddings: expected true or false, got "yes"'),
        ({"hidden_act": "gelu"}, 'hidden_act: expected "silu", got "gelu"'),
        ({"is_causal": None}, "is_causal: expected true, got nothing"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: expected nothing, got"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: expected 1, got 0.5"),
        ({"dtype": "int8"}, 'dtype: expected float32 or bfloat16 or float16, got "int8"'),
        ({"sliding_window": 5}, "sliding_window: expected nothing for this architecture, got 5"),
        ({"rope_theta": 1.0}, "rope_theta: expected a number above 1, got 1.0"),
        ({"rope_scaling": "llama3"}, 'rope_scaling: expected an object, got "llama3"'),
        ({"rope_scaling": {"type": "longrope"}}, "rope_type: expected default or .*longrope"),
        ({"rope_scaling": LLAMA3 | {"mrope_section": [1]}}, "rope_scaling: expected only .*mrope"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1}}, "high_freq_factor: expected a number"),
        (MISTRAL | {"layer_types": [FULL] * 3}, "layer_types: expected nothing"),
        (QWEN2 | {"layer_types": [SLIDING] * 3}, "layer_types: expected 3 times full_attention,"),
        ({"eos_token_id": 50}, r"eos_token_id: expected ids in \[0, 50\), got 50"),
        ({"eos_token_id": [1, "2"]}, r"eos_token_id: expected ids in \[0, 50\), got \[1, .2.\]"),
        ({"eos_token_id": "a\nb"}, r"eos_token_id: expected ids in \[0, 50\), got .a"),
        ({"architectures": [["x"]]}, "architectures: expected one of Llama"),
        ({"rope_scaling": YARN | {"factor": 1e308}}, "factor: expected a number in .*got 1e.308"),
        (QWEN2 | {"layer_types": [["x"]] * 3}, "layer_types: expected 3 times full_attention,"),
    ],
)
def test_what_is_unfit_or_unsupported_is_named(
    read: Callable[..., ModelConfig], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=rf"^.*config\.json: .*{message}.*\Z"):
        read(**changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected JSON, got Expecting value"),
        (b'{"hidden_size": 2', "expected JSON, got"),
        (b"[" * 200_000, "expected JSON, got"),
        (b"[1]", "expected an object, got list"),
        (b"\xff\xfe\x00", "expected UTF-8 text, got"),
        (b'{"vocab_size": 1' + b"0" * 5000 + b"}", "expected JSON, got"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"^.*config\.json: {message}.*\Z"):
        ModelConfig.read(tmp_path / "config.json")


def test_missing_and_oversized_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: expected a file, got none"):
        ModelConfig.read(tmp_path / "config.json")
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(CheckpointError, match=r"config\.json: expected UTF-8 text, got more than "):
        ModelConfig.read(tmp_path / "config.json")


SMALL: dict[str, Any] = TINY | {"head_dim": 4}
NAMES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
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
"""How many of each thirty configs are served: refusing one more is a mistake, too."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("part", "num_served"), [*enumerate(NUM_SERVED)])
def test_any_config_gives_the_reference_s_logits_or_is_refused(
    part: int, num_served: int, tmp_path: Path
) -> None:
    assert sum(agrees(seed, tmp_path) for seed in range(30 * part, 30 * part + 30)) >= num_served


def agrees(seed: int, directory: Path) -> bool:
    """Compare logits, which must be equal; returns whether there were any."""
    random = Random(seed)  # noqa: S311, no secret
    kind = random.choice(list(NAMES))
    names = random.sample(list(VALUES), random.randint(1, 4))
    names += ["rope_parameters", "rope_scaling"] if random.random() < 0.3 else []
    changes = {name: random.choice(VALUES[name]) for name in names}
    config = {"model_type": kind, "architectures": [f"{NAMES[kind]}ForCausalLM"]} | SMALL | changes
    file = directory / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    try:
        # Weights so large that positions matter to the logits.
        reference: Any = random_model(AutoConfig.from_pretrained(directory), scale=2.0)
    except Exception:  # noqa: BLE001, whatever it raises
        # There are no logits to compare, but our error must still name the field.
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
