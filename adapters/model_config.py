"""The shape of a model, read from config.json.

Fields that transformers' implementation of the architecture does not read are ignored. Fields that
it reads and this one does not support are an error. Absent fields have transformers' defaults. All
architectures run through the one decoder of `acceptor.adapters.transformer`.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from attrs import evolve, frozen

from ..core.checks import check_integer
from .json_object import JsonObject, read_json
from .rope import Rope, read_rope

Windows = tuple[int | None, ...]


@frozen(kw_only=True)
class Architecture:
    """What one architecture adds to a plain decoder.

    Attributes:
        qkv_bias, output_bias, mlp_bias: whether these projections have a bias; a string names the
            config field that says so.
        qk_norm: whether queries and keys are normalised per head.
        read_windows: config and number of layers -> each layer's sliding window, or None.
        default_head_dim: head_dim if the config has none; None means hidden_size / heads.
    """

    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    read_windows: Callable[[JsonObject, int], Windows]
    default_head_dim: int | None = None


def _no_windows(config: JsonObject, num_layers: int) -> Windows:
    for name in ("sliding_window", "layer_types"):
        value = config.value(name)
        if value is not None and value != ["full_attention"] * num_layers:
            raise config.error(name, "nothing for this architecture", value)
    return (None,) * num_layers


def _same_window(config: JsonObject, num_layers: int) -> Windows:
    types = config.value("layer_types", ["sliding_attention"])
    if not isinstance(types, list) or "sliding_attention" not in types:
        raise config.error("layer_types", "nothing", types)
    return (_window(config),) * num_layers


def _window(config: JsonObject) -> int | None:
    # Here null, unlike absent, switches the window off.
    if config.values.get("sliding_window", 4096) is None:
        return None
    return config.integer("sliding_window", 1, default=4096)


def _window_per_layer(config: JsonObject, num_layers: int) -> Windows:
    window = _window(config) if config.flag("use_sliding_window", default=False) else None
    types = config.value("layer_types", _default_layer_types(config, num_layers, window))
    allowed = {"full_attention": None} | ({"sliding_attention": window} if window else {})
    kinds = list(allowed)
    if (
        not isinstance(types, list)
        or len(types) != num_layers
        or any(t not in kinds for t in types)
    ):
        raise config.error("layer_types", f"{num_layers} times {' or '.join(kinds)}", types)
    return tuple(allowed[kind] for kind in types)


def _default_layer_types(config: JsonObject, num_layers: int, window: int | None) -> list[str]:
    first = config.integer("max_window_layers", 0, default=28) if window else num_layers
    return [("full" if i < first else "sliding") + "_attention" for i in range(num_layers)]


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        mlp_bias="mlp_bias",
        read_windows=_no_windows,
    ),
    "MistralForCausalLM": Architecture(read_windows=_same_window),
    "Qwen2ForCausalLM": Architecture(qkv_bias=True, read_windows=_window_per_layer),
    "Qwen3ForCausalLM": Architecture(
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm=True,
        read_windows=_window_per_layer,
        default_head_dim=128,
    ),
}


def named_architecture(config: JsonObject) -> str | None:
    """The architecture that config.json names, ours or not; None if it names none or several."""
    names = config.value("architectures")
    is_one = isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
    return names[0] if is_one else None


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MAX_LAYERS = 1024
MAX_POSITIONS = 2**22
"""Far beyond any real model, but a hostile config must not fill the memory."""

_ONLY_VALUES: dict[str, object] = {
    "hidden_act": "silu",
    "is_causal": True,
    "is_encoder_decoder": False,
    "partial_rotary_factor": 1,
    "quantization_config": None,
    "rope_interleaved": False,
}


@frozen(kw_only=True)
class ModelConfig:
    """A decoder's shape.

    Attributes:
        max_position_embeddings: how many positions the model was made for, scaling included.
        windows: per layer, how many positions a query sees, its own included; None for all.
        tie_word_embeddings: whether the LM head is the token embedding.
        dtype: the weights' dtype by config.json; None if it names none.
        eos_token_ids: tokens that end a text, from generation_config.json or else config.json.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    rms_norm_eps: float
    rope: Rope
    max_position_embeddings: int
    windows: Windows
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tie_word_embeddings: bool
    dtype: torch.dtype | None
    eos_token_ids: tuple[int, ...]

    @property
    def num_layers(self) -> int:
        """The number of decoder layers."""
        return len(self.windows)

    @property
    def head_dim(self) -> int:
        """The size of an attention head."""
        return self.rope.head_dim

    @property
    def layer_shape(self) -> tuple[int, int]:
        """The shape that a layer caches per token, see `SlotMemory`."""
        return 2 * self.num_kv_heads, self.head_dim

    @classmethod
    def read(cls, path: Path) -> "ModelConfig":
        """Read a config file of any name, and a generation_config.json beside it."""
        config = read_json(path)
        name = named_architecture(config)
        if name is None or name not in ARCHITECTURES:
            known, names = ", ".join(ARCHITECTURES), config.value("architectures")
            raise config.error("architectures", f"one of {known}", names)
        model = cls.of(config, name)
        return evolve(model, eos_token_ids=read_eos(path.parent, config, model.vocab_size))

    @classmethod
    def of(cls, config: JsonObject, name: str) -> "ModelConfig":
        """Read a config as this architecture's, whatever it names; no token ends a text."""
        architecture = ARCHITECTURES[name]
        for field, only in _ONLY_VALUES.items():
            if config.value(field, only) != only:
                expected = "nothing" if only is None else json.dumps(only)
                raise config.error(field, expected, config.value(field))
        # Here null, unlike absent, makes transformers let tokens see later ones.
        if config.values.get("is_causal", True) is None:
            raise config.error("is_causal", "true", None)
        heads, kv_heads, rope = _read_heads(config, architecture)
        positions = config.integer("max_position_embeddings", 1, MAX_POSITIONS)
        return cls(
            vocab_size=config.integer("vocab_size", 1),
            hidden_size=config.integer("hidden_size", 1),
            intermediate_size=config.integer("intermediate_size", 1),
            num_heads=heads,
            num_kv_heads=kv_heads,
            rms_norm_eps=config.positive("rms_norm_eps", 1e-6),
            rope=rope,
            max_position_embeddings=min(max(positions, rope.stretched_len), MAX_POSITIONS),
            windows=architecture.read_windows(
                config, config.integer("num_hidden_layers", 1, MAX_LAYERS)
            ),
            qkv_bias=_read_bias(config, architecture.qkv_bias),
            output_bias=_read_bias(config, architecture.output_bias),
            mlp_bias=_read_bias(config, architecture.mlp_bias),
            qk_norm=architecture.qk_norm,
            tie_word_embeddings=config.flag("tie_word_embeddings", default=False),
            dtype=_read_dtype(config),
            eos_token_ids=(),
        )


def _read_heads(config: JsonObject, architecture: Architecture) -> tuple[int, int, Rope]:
    heads = config.integer("num_attention_heads", 1)
    kv_heads = config.integer("num_key_value_heads", 1, default=heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"a divisor of {heads}", kv_heads)
    hidden = config.integer("hidden_size", 1)
    default = architecture.default_head_dim
    if default is None and hidden % heads == 0:
        default = hidden // heads
    head_dim = config.integer("head_dim", 2, default=default)
    if head_dim % 2:
        raise config.error("head_dim", "an even number", head_dim)
    return heads, kv_heads, read_rope(config, head_dim)


def context_of(wanted: int | None, longest: int) -> int:
    """How many positions a model gets: all that it was made for, or fewer if wanted."""
    length = longest if wanted is None else wanted
    check_integer("max_model_len", length, 1, longest)
    return length


def _read_bias(config: JsonObject, bias: bool | str) -> bool:
    return config.flag(bias, default=False) if isinstance(bias, str) else bias


def _read_dtype(config: JsonObject) -> torch.dtype | None:
    spelling = "dtype" if "dtype" in config else "torch_dtype"
    if spelling not in config:
        return None
    name = config.text(spelling)
    if name not in DTYPES:
        raise config.error(spelling, " or ".join(DTYPES), name)
    return DTYPES[name]


def read_eos(directory: Path, config: JsonObject, vocab_size: int) -> tuple[int, ...]:
    """The tokens that end a text, from generation_config.json or else config.json.

    Raises:
        CheckpointError: one of them is not in the vocabulary.
    """
    source, path = config, directory / "generation_config.json"
    # A dangling link is an error; a missing file is not.
    if os.path.lexists(path) and "eos_token_id" in (generation := read_json(path)):
        source = generation
    value = source.value("eos_token_id", [])
    ids = value if isinstance(value, list) else [value]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise source.error("eos_token_id", f"ids in [0, {vocab_size})", value)
    return tuple(ids)
