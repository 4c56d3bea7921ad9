"""Multi-token prediction as GLM-4.7-Flash has it: one more decoder layer, which drafts.

The layer is the library's own, with a cache of slots.
"""

from copy import deepcopy
from pathlib import Path

import torch
from attrs import evolve, frozen
from torch import Tensor, nn
from transformers.modeling_layers import MtpLayer

from ..checkpoint import Checkpoint, Shape
from ..draft_heads.head import Head
from ..draft_heads.head_config import MtpSwitches
from ..json_object import JsonObject, read_json
from ..kv_cache import KVCache, Places
from ..weights import STANDARD_DEVIATION
from .model import LibraryModel, StepCache

MODEL_TYPE = "glm4_moe_lite"

_COPIES = frozenset({"embed_tokens.weight", "shared_head.head.weight"})
"""Tensors of the layer that are the target's, which are used instead."""

_OF_EXPERTS = {
    "mlp.experts.gate_up_proj": ("gate_proj", "up_proj"),
    "mlp.experts.down_proj": ("down_proj",),
}


def _layer(target: LibraryModel) -> MtpLayer:
    network = target.network.base_model
    config = deepcopy(network.config)
    config.num_hidden_layers, config.mlp_layer_types = 1, ["sparse"]
    return MtpLayer(config, type(network.layers[-1]), type(network.norm), 0)


def load_mtp(directory: Path, target: LibraryModel, switches: MtpSwitches) -> Head:
    """Load the layer after the target's last one, from the target's directory or one like it."""
    config = _read_config(directory / "config.json", target)
    config.integer("num_hidden_layers", target.num_layers, target.num_layers)
    with torch.device("meta"):
        layer = _layer(target)
    checkpoint, prefix = Checkpoint.open(directory), f"model.layers.{target.num_layers}."
    own = {name: e for name, e in checkpoint.entries.items() if name.startswith(prefix)}
    shapes = {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()}
    parts = {name: _in_file(name, shape) for name, shape in shapes.items()}
    expected = {prefix + part: shape for given in parts.values() for part, shape in given.items()}
    evolve(checkpoint, entries=own).check(expected, frozenset(prefix + name for name in _COPIES))

    def read(name: str) -> Tensor:
        tensor = torch.cat([checkpoint.tensor(prefix + part) for part in parts[name]])
        dtype = torch.float32 if name.endswith("correction_bias") else target.dtype
        return tensor.view(shapes[name]).to(target.device, dtype)

    layer.load_state_dict({name: read(name) for name in parts}, assign=True)
    return _head(target, layer, switches)


def random_mtp(config_file: Path, target: LibraryModel) -> Head:
    """The layer that a target's config.json describes, with random weights."""
    _read_config(config_file, target)
    with target.device:
        layer = _layer(target).to(target.dtype)
    for weight in layer.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=STANDARD_DEVIATION)
    return _head(target, layer, MtpSwitches())


def _read_config(file: Path, target: LibraryModel) -> JsonObject:
    config, kind = read_json(file), target.network.config.model_type
    if kind != MODEL_TYPE:
        raise config.error("model_type", f"{MODEL_TYPE} with the drafter mtp", kind)
    config.integer("num_nextn_predict_layers", 1, 1)
    return config


def _in_file(name: str, shape: Shape) -> dict[str, Shape]:
    """The names and shapes in the file that are stacked into one tensor of the layer."""
    if name == "post_norm.weight":
        return {"shared_head.norm.weight": shape}
    name = name.removeprefix("mtp_block.")
    projections = _OF_EXPERTS.get(name)
    if projections is None:
        return {name: shape}
    return {
        f"mlp.experts.{expert}.{projection}.weight": (shape[1] // len(projections), shape[2])
        for expert in range(shape[0])
        for projection in projections
    }


def _head(target: LibraryModel, layer: MtpLayer, switches: MtpSwitches) -> Head:
    layer.use_post_norm = switches.normalise_features
    return Head(
        taps=(target.num_layers,),
        # Features are the input of the target's LM head.
        read=lambda hidden: target.norm(hidden[0]),
        layer=MtpBlock(target, layer.eval(), switches.zero_first_embedding),
        layer_shapes=target.shapes[target.num_layers - 1],
        embedding=target.embedding,
        norm=None if switches.normalise_features else layer.post_norm,
        lm_head=target.lm_head,
        draft_to_target=None,
        max_model_len=target.max_model_len,
        what_to_check=f"the settings {switches}",
    )


@frozen(eq=False)
class MtpBlock:
    """The layer of a `acceptor.adapters.draft_heads.head.Head`.

    Attributes:
        target: lends its rotary embedding and masks.
        zero_first_embedding: see `MtpSwitches`.
    """

    target: LibraryModel
    layer: MtpLayer
    zero_first_embedding: bool

    def __call__(
        self, features: Tensor, embedded: Tensor, places: Places, cache: KVCache
    ) -> Tensor:
        """See `Head.layer`."""
        positions = places.positions
        if self.zero_first_embedding:
            embedded = embedded.masked_fill((positions == 0)[..., None], 0)
        following: Tensor = self.layer(
            embedded,
            features,
            position_embeddings=self.target.network.base_model.rotary_emb(features, positions),
            attention_mask=self.target.masks(places),
            position_ids=positions,
            past_key_values=StepCache((0,), cache, places),
            use_cache=True,
        )
        return following
