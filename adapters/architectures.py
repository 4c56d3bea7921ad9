"""What distinguishes the supported decoder architectures, as far as config.json decides it.

Defaults of absent fields are those of the transformers library. All architectures run through the
one decoder of `acceptor.adapters.transformer`.
"""

from collections.abc import Callable

from attrs import frozen

from .json_object import JsonObject

Windows = tuple[int | None, ...]


@frozen(kw_only=True)
class Architecture:
    """One architecture.

    Attributes:
        qkv_bias, output_bias, mlp_bias: whether these projections have a bias; a string names the
            config field that says so.
        qk_norm: whether queries and keys are normalised per head.
        read_windows: config and number of layers -> each layer's sliding window, or None.
        default_head_dim: head_dim when the config has none; None means hidden_size / heads.
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
    # Here null differs from absent: it switches the window off.
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
    """The architecture that config.json names, ours or not; None unless it names exactly one."""
    names = config.value("architectures")
    is_one = isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
    return names[0] if is_one else None
