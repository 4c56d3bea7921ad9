"""A draft head's shape and switches, from config.json in EAGLE's own format or in speculators'.

A wrong switch breaks nothing, it only has every draft rejected: what the formats leave open is
asked for, not guessed.
"""

from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from ...core.checks import check_integers
from ...core.errors import InvalidInputError
from ..json_object import JsonObject
from ..language_model import TransformerModel
from ..model_config import ModelConfig

if TYPE_CHECKING:
    from ..library_model.model import LibraryModel

Target: TypeAlias = "TransformerModel | LibraryModel"
SPECULATORS = "speculators_model_type"
RAW_LAYER = "midlayer."
TAPS = "eagle_aux_hidden_state_layer_ids"

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def read_layer(config: JsonObject, target: Target) -> ModelConfig:
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
    """What no file says of a layer for multi-token prediction; as transformers has it.

    Attributes:
        normalise_features: whether the features that it hands on are normalised.
        zero_first_embedding: whether the first row sees no embedding.
    """

    normalise_features: bool = True
    zero_first_embedding: bool = False


@frozen(kw_only=True)
class Eagle3Config:
    """What EAGLE-3 heads differ in.

    Attributes:
        layer: the shape of its layer.
        prefix: of the names of the layer's tensors.
        taps: after how many of the target's layers it looks, ascending.
        draft_vocab_size: how many ids it has.
        norm_before_residual: whether attention adds to the normalised features.
        norm_before_fc: whether the taps are normalised side by side.
        fc_norm: whether each of them is.
        norm_output: whether the features that it hands on are normalised.
    """

    layer: ModelConfig
    prefix: str
    taps: tuple[int, ...]
    draft_vocab_size: int
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool

    @property
    def what_to_check(self) -> str:
        """What a file may say by another convention."""
        return (
            f"that it is this target's, and norm_before_residual ({self.norm_before_residual}), "
            f"rope_theta ({self.layer.rope.theta:g}), {TAPS} ({list(self.taps)})"
        )

    @classmethod
    def read(cls, config: JsonObject, target: Target) -> "Eagle3Config":
        """Read it."""
        is_raw = SPECULATORS not in config
        if not is_raw and config.text(SPECULATORS) != "eagle3":
            raise config.error(SPECULATORS, "eagle3", config.value(SPECULATORS))
        nested = config if is_raw else config.section("transformer_layer_config")
        layer = read_layer(nested, target)
        seen = config.integer("target_hidden_size", 1, default=layer.hidden_size)
        if seen != target.hidden_size:
            raise config.error("hidden_size", f"the target's, {target.hidden_size}", seen)
        more = config.section("eagle_config")

        def switch(name: str) -> bool:
            return config.flag(name, default=more.flag(name, default=False))

        if not is_raw and "norm_before_residual" not in config:
            # Its own library takes it for false, engines that load its files for true.
            raise config.error("norm_before_residual", "true or false", None)
        if switch("norm_before_fc") and switch("fc_norm"):
            raise config.error("fc_norm", "false beside norm_before_fc", True)
        return cls(
            layer=layer,
            prefix=RAW_LAYER if is_raw else "layers.0.",
            taps=_read_taps(config if TAPS in config else more, target),
            draft_vocab_size=config.integer(
                "draft_vocab_size", 1, target.vocab_size, default=target.vocab_size
            ),
            norm_before_residual=switch("norm_before_residual"),
            norm_before_fc=switch("norm_before_fc"),
            fc_norm=switch("fc_norm"),
            norm_output=switch("norm_output"),
        )


def _read_taps(config: JsonObject, target: Target) -> tuple[int, ...]:
    num_layers = target.num_layers
    taps = config.value(TAPS, [2, num_layers // 2, num_layers - 3])
    try:
        check_integers(TAPS, taps, 0, num_layers)
    except (InvalidInputError, TypeError):
        raise config.error(TAPS, f"integers from 0 to {num_layers}", taps) from None
    if not taps or len(set(taps)) < len(taps):
        raise config.error(TAPS, f"different layers of {num_layers}", taps)
    return tuple(sorted(taps))
