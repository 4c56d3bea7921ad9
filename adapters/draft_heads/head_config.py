"""A draft head's shape and switches, from config.json in EAGLE's own format or in speculators'.

A wrong switch raises no error, but gets nearly every draft rejected. So the user must set what the
formats leave open; nothing is guessed.
"""

from attrs import frozen

from ...core.checks import check_integers
from ...core.errors import InvalidInputError
from ...core.policies.parameters import flag
from ..json_object import JsonObject
from ..loader import AnyModel
from ..model_config import ModelConfig

SPECULATORS = "speculators_model_type"
RAW_LAYER = "midlayer."
TAPS = "eagle_aux_hidden_state_layer_ids"

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def read_layer(config: JsonObject, target: AnyModel) -> ModelConfig:
    """The shape of a head's one layer."""
    kind = config.text("model_type")
    if kind not in _ARCHITECTURES:
        raise config.error("model_type", " or ".join(_ARCHITECTURES), kind)
    config.integer("num_hidden_layers", 1, 1)
    if (vocab_size := config.value("vocab_size")) != target.vocab_size:
        raise config.error("vocab_size", f"the target's, {target.vocab_size}", vocab_size)
    return ModelConfig.of(config, _ARCHITECTURES[kind])


@frozen(kw_only=True)
class MtpSwitches:
    """Switches of a multi-token prediction layer that no file holds; defaults are transformers'.

    Attributes:
        normalise_features: whether the features that it passes on are normalised.
        zero_first_embedding: whether the first row sees no embedding.
    """

    normalise_features: bool = flag(True)
    zero_first_embedding: bool = flag(False)


SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
"""EAGLE-3's switches: whether attention adds to the normalised features, whether the taps are
normalised side by side, whether each tap is, and whether the features that it passes on are."""


def read_eagle3_layer(config: JsonObject, target: AnyModel) -> tuple[ModelConfig, str]:
    """The shape of an EAGLE-3 head's layer, and the prefix of its tensors' names."""
    is_raw = SPECULATORS not in config
    if not is_raw and config.text(SPECULATORS) != "eagle3":
        raise config.error(SPECULATORS, "eagle3", config.value(SPECULATORS))
    layer = read_layer(config if is_raw else config.section("transformer_layer_config"), target)
    seen = config.integer("target_hidden_size", 1, default=layer.hidden_size)
    if seen != target.hidden_size:
        raise config.error("hidden_size", f"the target's, {target.hidden_size}", seen)
    return layer, RAW_LAYER if is_raw else "layers.0."


def read_switches(config: JsonObject) -> dict[str, bool]:
    """Read all of `SWITCHES`."""
    if SPECULATORS in config and SWITCHES[0] not in config:
        # If absent, EAGLE's own library assumes false, but engines that load its files assume true.
        raise config.error(SWITCHES[0], "true or false", None)
    more = config.section("eagle_config")
    switches = {
        name: config.flag(name, default=more.flag(name, default=False)) for name in SWITCHES
    }
    if switches["norm_before_fc"] and switches["fc_norm"]:
        raise config.error("fc_norm", "false beside norm_before_fc", True)
    return switches


def read_taps(config: JsonObject, target: AnyModel) -> tuple[int, ...]:
    """The target layers after which an EAGLE-3 head reads hidden states, ascending."""
    config = config if TAPS in config else config.section("eagle_config")
    num_layers = target.num_layers
    taps = config.value(TAPS, [2, num_layers // 2, num_layers - 3])
    try:
        check_integers(TAPS, taps, 0, num_layers)
    except (InvalidInputError, TypeError):
        raise config.error(TAPS, f"integers from 0 to {num_layers}", taps) from None
    if not taps or len(set(taps)) < len(taps):
        raise config.error(TAPS, f"different layers of {num_layers}", taps)
    return tuple(sorted(taps))
