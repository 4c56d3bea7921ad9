"""What the attention of all layers needs in one forward, planned once."""

import torch
from attrs import frozen
from torch import Tensor

from ..core.policies.parameters import derived
from .attention import FEW_TOKENS, AttendInSteps, Spans
from .fusion import can_compile, fused_operations
from .kv_cache import KVCache, slot_len
from .layer_operations import PLAIN_OPERATIONS, LayerOperations
from .model_config import ModelConfig
from .places import Places
from .transformer import Step

MAX_FUSED_TOKENS = 32
"""Of a request. Decode steps are waited for; a prompt is longer, and not worth compiling for."""


@frozen(eq=False, kw_only=True)
class StepPlanner:
    """Plans the forwards of a model in torch's own operations.

    Attributes:
        config: of the model.
        rope_table: see `Rope.table`, for all positions, in the model's dtype and on its device.
        operations: of decode steps.
    """

    config: ModelConfig
    rope_table: Tensor
    operations: LayerOperations
    _all_positions: Tensor = derived(
        lambda planner: torch.arange(len(planner.rope_table), device=planner.rope_table.device)
    )

    @classmethod
    def of(
        cls, config: ModelConfig, max_model_len: int, dtype: torch.dtype, device: torch.device
    ) -> "StepPlanner":
        """Of a model with so many positions, whose weights are of this dtype on this device."""
        return cls(
            config=config,
            rope_table=config.rope.table(max_model_len).to(device, dtype),
            operations=fused_operations() if can_compile(device) else PLAIN_OPERATIONS,
        )

    def new_cache(self, num_layers: int, num_slots: int, max_len: int) -> KVCache:
        """Room for max_len positions, or a few more, in each of num_slots slots."""
        config, table = self.config, self.rope_table
        length = slot_len(max_len, table.device)
        shape = (num_slots, length, 2 * config.num_kv_heads, config.head_dim)
        return KVCache.allocate(num_layers, shape, table.dtype, table.device)

    def places(
        self, positions: Tensor, slot_ids: Tensor | None, cache: KVCache, max_position: int | None
    ) -> Places:
        """See `Places.of`."""
        # A slot that was rounded up may have more positions than the model knows.
        limit = min(cache.max_len, len(self.rope_table))
        return Places.of(positions, slot_ids, cache.slot_ids, limit, max_position)

    def plan(self, places: Places, cache: KVCache) -> Step:
        """A forward of the tokens at these places."""
        positions = places.positions
        flash = self.rope_table.is_cuda and self.rope_table.dtype != torch.float32
        rotation = self.rope_table.index_select(0, positions.flatten())
        cos, signed_sin = rotation.unsqueeze(2).unbind(1)
        few = positions.shape[1] <= MAX_FUSED_TOKENS
        operations = self.operations if few else PLAIN_OPERATIONS
        attend = AttendInSteps(
            places=places,
            cos=cos,
            signed_sin=signed_sin,
            rows=places.rows(cache.max_len),
            biases={}
            if flash
            else {window: self._bias(places, window) for window in set(self.config.windows)},
            spans=Spans.of(positions, places.slot_ids, cache.max_len) if flash else None,
            operations=operations,
        )
        return Step(attend=attend, operations=operations)

    def _bias(self, places: Places, window: int | None) -> Tensor:
        unseen = places.unseen(self._all_positions, window)
        # Added to scores, not a boolean mask, which attention would turn into this in every layer.
        bias = self.rope_table.new_zeros(unseen.shape).masked_fill_(unseen, -torch.inf)
        if places.positions.shape[1] > FEW_TOKENS:
            return bias
        group = self.config.num_heads // self.config.num_kv_heads
        return bias.repeat(1, 1, group, 1)
