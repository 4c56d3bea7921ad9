"""Multi-token prediction as GLM-4.7-Flash has it: one more decoder layer, which drafts.

The layer is the library's own, with a cache of slots.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812, as in torch's own documentation
from attrs import evolve, field, frozen
from torch import Tensor, nn

from ...core.policies.parameters import derived
from ..checkpoint import Checkpoint, Shape
from ..draft_heads.head_config import MtpSwitches
from ..json_object import JsonObject, read_json
from ..kv_cache import Places, check_tokens
from ..random_weights import STANDARD_DEVIATION
from .model import LibraryModel, SlotMemory, StepCache

MODEL_TYPE = "glm4_moe_lite"

_COPIES = frozenset({"embed_tokens.weight", "shared_head.head.weight"})
"""Of the target's, which serve instead."""

_OF_EXPERTS = {
    "mlp.experts.gate_up_proj": ("gate_proj", "up_proj"),
    "mlp.experts.down_proj": ("down_proj",),
}


class MtpLayer(nn.Module):
    """The weights, by their names in the file but for the decoder layer's and the experts'."""

    def __init__(self, target: LibraryModel) -> None:
        super().__init__()
        network = target.network.base_model
        config = deepcopy(network.config)
        config.num_hidden_layers, config.mlp_layer_types = 1, ["sparse"]
        size, norm = config.hidden_size, type(network.norm)
        self.enorm = norm(size, config.rms_norm_eps)
        self.hnorm = norm(size, config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * size, size, bias=False)
        self.norm = norm(size, config.rms_norm_eps)
        self.block = type(network.layers[-1])(config, 0)


def load_mtp(directory: Path, target: LibraryModel, switches: MtpSwitches) -> "MtpHead":
    """The layer behind the target's last one, from the target's directory or one like it."""
    config = _read_config(directory / "config.json", target)
    config.integer("num_hidden_layers", target.num_layers, target.num_layers)
    with torch.device("meta"):
        layer = MtpLayer(target)
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
    return MtpHead(target=target, layer=layer.eval(), switches=switches)


def random_mtp(config_file: Path, target: LibraryModel) -> "MtpHead":
    """The layer that a target's config.json tells of, with random weights."""
    _read_config(config_file, target)
    with target.device:
        layer = MtpLayer(target).to(target.dtype)
    for weight in layer.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=STANDARD_DEVIATION)
    return MtpHead(target=target, layer=layer.eval(), switches=MtpSwitches())


def _read_config(file: Path, target: LibraryModel) -> JsonObject:
    config, kind = read_json(file), target.network.config.model_type
    if kind != MODEL_TYPE:
        raise config.error("model_type", f"{MODEL_TYPE} with the drafter mtp", kind)
    config.integer("num_nextn_predict_layers", 1, 1)
    return config


def _in_file(name: str, shape: Shape) -> dict[str, Shape]:
    """Names and shapes of what, stacked, is a tensor of `MtpLayer`."""
    if name == "norm.weight":
        return {"shared_head.norm.weight": shape}
    name = name.removeprefix("block.")
    projections = _OF_EXPERTS.get(name)
    if projections is None:
        return {name: shape}
    return {
        f"mlp.experts.{expert}.{projection}.weight": (shape[1] // len(projections), shape[2])
        for expert in range(shape[0])
        for projection in projections
    }


@frozen(eq=False, kw_only=True)
class MtpHead:
    """A `acceptor.core.ports.DraftHead`. Most that it says is the target's.

    Attributes:
        target: whose ends, rotary embedding and masks it uses.
        switches: how it hands its features on.
    """

    target: LibraryModel
    layer: MtpLayer
    switches: MtpSwitches
    draft_to_target: None = field(default=None, init=False)
    taps: tuple[int, ...] = derived(lambda head: (head.target.num_layers,))
    feature_size: int = derived(lambda head: head.target.hidden_size)
    vocab_size: int = derived(lambda head: head.target.vocab_size)
    max_model_len: int = derived(lambda head: head.target.max_model_len)
    dtype: torch.dtype = derived(lambda head: head.target.dtype)
    device: torch.device = derived(lambda head: head.target.device)
    what_to_check: str = derived(lambda head: f"the settings {head.switches}")

    def new_cache(self, num_slots: int, max_len: int) -> SlotMemory:
        """Room for max_len positions in each of num_slots slots."""
        target = self.target
        shapes = {0: target.shapes[target.num_layers - 1]}
        return SlotMemory.allocate(shapes, num_slots, max_len, target.dtype, target.device)

    def clear(self, cache: SlotMemory, slot_ids: Sequence[int]) -> None:
        """Forget slots."""
        cache.clear(slot_ids)

    def read(self, hidden: Sequence[Tensor]) -> Tensor:
        """Features are what the target's LM head is given."""
        features: Tensor = self.target.norm(hidden[0])
        return features

    @torch.no_grad()
    def forward(
        self,
        features: Tensor,
        token_ids: Tensor,
        positions: Tensor,
        cache: SlotMemory,
        slot_ids: Tensor,
        *,
        max_position: int | None = None,
    ) -> Tensor:
        """See `acceptor.core.ports.DraftHead.forward`; errors are those of `TransformerModel`."""
        target, layer = self.target, self.layer
        check_tokens(token_ids, positions, slot_ids, target.vocab_size, target.device)
        limit = min(cache.max_len, self.max_model_len)
        places = Places.of(positions, slot_ids, cache.slot_ids, limit, max_position)
        embedded = F.embedding(token_ids, target.embedding)
        if self.switches.zero_first_embedding:
            embedded = embedded.masked_fill((positions == 0)[..., None], 0)
        merged = layer.eh_proj(torch.cat((layer.enorm(embedded), layer.hnorm(features)), -1))
        following: Tensor = layer.block(
            merged,
            position_embeddings=target.network.base_model.rotary_emb(merged, positions),
            attention_mask=target.masks(places),
            position_ids=positions,
            past_key_values=StepCache(cache, places),
            use_cache=True,
        )
        return layer.norm(following) if self.switches.normalise_features else following

    def score(self, features: Tensor) -> Tensor:
        """Logits [num_reqs, vocab_size] of what comes behind the next token."""
        normalised = features if self.switches.normalise_features else self.layer.norm(features)
        logits: Tensor = self.target.lm_head(normalised)
        return logits
