"""A decoder with its positions, slots and cache: the model as the decode loop sees it.

A forward never reads a tensor's values on the host, so it does not wait for a GPU and can be
captured in a CUDA graph.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from ..core.checks import check_integer, check_integers
from ..core.scores import Scores
from .attention import AttendInSteps
from .forward_choice import check_forward, choose_kernels
from .fusion import can_compile, fused_operations
from .kv_cache import KVCache
from .layer_operations import PLAIN_OPERATIONS, LayerOperations
from .lengths import CPU_LENGTHS, GPU_LENGTHS, Lengths
from .model_config import ModelConfig
from .places import Places, check_tokens
from .spans import FEW_TOKENS, Spans
from .transformer import Decoder, Step

if TYPE_CHECKING:
    from .few_tokens.forward import FewTokens

MAX_FUSED_TOKENS = 32
"""Of a request. Decode steps are waited for; a prompt is longer, and not worth compiling for."""


@frozen(eq=False)
class TransformerModel:
    """A `acceptor.core.ports.LanguageModel`.

    Attributes:
        config: what config.json said.
        decoder: the weights, all of one dtype on one device.
        max_model_len: how many positions a sequence may have.
        lengths: how they are rounded.
        wanted_forward: one of `acceptor.adapters.forward_choice.FORWARDS`.

    Raises:
        InvalidInputError: there is no such forward.
        UnavailableError: the wanted forward cannot compute this model here.
    """

    config: ModelConfig
    decoder: Decoder
    max_model_len: int
    lengths: Lengths = field(kw_only=True)
    wanted_forward: str = field(
        default="auto", kw_only=True, validator=lambda _, __, name: check_forward(name)
    )
    _operations: LayerOperations = field(init=False)
    _rope_table: Tensor = field(init=False)
    _kernels: "FewTokens | None" = field(init=False)
    _all_positions: Tensor = field(init=False)

    @lengths.default
    def _choose_lengths(self) -> Lengths:
        return CPU_LENGTHS if self.device.type == "cpu" else GPU_LENGTHS

    @_operations.default
    def _make_operations(self) -> LayerOperations:
        return fused_operations() if can_compile(self.device) else PLAIN_OPERATIONS

    @_rope_table.default
    def _make_rope_table(self) -> Tensor:
        return self.config.rope.table(self.max_model_len).to(self.device, self.dtype)

    @_kernels.default
    def _make_kernels(self) -> "FewTokens | None":
        return choose_kernels(self.wanted_forward, self.decoder, self._rope_table)

    @_all_positions.default
    def _make_all_positions(self) -> Tensor:
        return torch.arange(self.max_model_len, device=self.device)

    @property
    def vocab_size(self) -> int:
        """The width of its logits."""
        return self.config.vocab_size

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        return self.config.eos_token_ids

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its weights and logits."""
        return self.decoder.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.decoder.embedding.device

    @property
    def forward_name(self) -> str:
        """What computes decode steps: `triton` or `torch`."""
        return "torch" if self._kernels is None else "triton"

    def first_layers(self, num_layers: int) -> "TransformerModel":
        """The model that leaves after some layers, with the same weights, norm and LM head.

        Raises:
            InvalidInputError: num_layers is not in [1, the number of layers].
        """
        check_integer("num_layers", num_layers, 1, self.config.num_layers)
        config = evolve(self.config, windows=self.config.windows[:num_layers])
        decoder = evolve(self.decoder, layers=self.decoder.layers[:num_layers])
        return evolve(self, config=config, decoder=decoder)

    def new_cache(self, num_slots: int, max_len: int) -> KVCache:
        """Room for max_len positions in each of num_slots slots, or for a few more: `lengths`.

        Raises:
            InvalidInputError: num_slots is below 1, or max_len not in [1, max_model_len].
        """
        check_integer("max_len", max_len, 1, self.max_model_len)
        return KVCache.allocate(
            num_layers=self.config.num_layers,
            num_slots=num_slots,
            max_len=self.lengths.of_slot(max_len),
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            dtype=self.dtype,
            device=self.device,
        )

    def clear(self, cache: KVCache, slot_ids: Sequence[int]) -> None:
        """Forget slots: needed before reuse only when their sequences left NaN or infinity."""
        cache.clear(slot_ids)

    @torch.no_grad()
    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: KVCache,
        slot_ids: Tensor | None = None,
        *,
        last_only: bool = False,
        max_position: int | None = None,
        taps: Sequence[int] = (),
    ) -> Scores:
        """Score tokens, see `acceptor.core.ports.LanguageModel.forward`.

        Where requests differ in length, pad with any token at the next positions: later tokens
        write over them. Each slot comes once; without slot_ids request i uses slot i. Without
        max_position a GPU, which is not asked, attends to the whole length of the cache.

        Raises:
            InvalidInputError: wrong shape, dtype, device or tap; on CPU also a token outside the
                vocabulary, or a slot or position outside the cache.
        """
        check_tokens(token_ids, positions, slot_ids, self.vocab_size, self.device)
        check_integers("taps", taps, 0, self.config.num_layers)
        num_reqs, num_tokens = token_ids.shape
        if num_reqs == 0:
            empty = self.decoder.embedding.new_empty
            logits = empty(0, 1 if last_only else num_tokens, self.vocab_size)
            return Scores(
                logits, tuple(empty(0, num_tokens, self.config.hidden_size) for _ in taps)
            )
        # A slot that was rounded up may have more positions than the model knows.
        limit = min(cache.max_len, self.max_model_len)
        places = Places.of(positions, slot_ids, cache.slot_ids, limit, self.lengths, max_position)
        kernels = self._kernels
        attend = None if kernels is None else kernels.attention_at(positions, places.slot_ids)
        if attend is None:
            step = self._plan(places, cache)
        else:
            step = Step(attend=attend, operations=self._operations)
        if kernels is not None and kernels.take_all(positions):
            return kernels.forward(token_ids, step.attend, cache, last_only=last_only, taps=taps)
        return self.decoder(token_ids, step, cache, last_only=last_only, taps=taps)

    def _plan(self, places: Places, cache: KVCache) -> Step:
        positions = places.positions
        flash = Spans.can_be_used(self.device, self.dtype)
        rotation = self._rope_table.index_select(0, positions.flatten())
        cos, signed_sin = rotation.unsqueeze(2).unbind(1)
        operations = (
            self._operations if positions.shape[1] <= MAX_FUSED_TOKENS else PLAIN_OPERATIONS
        )
        attend = AttendInSteps(
            num_reqs=len(positions),
            cos=cos,
            signed_sin=signed_sin,
            rows=cache.rows(places.slot_ids, positions),
            slots=places.slots,
            num_positions=places.num_positions,
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
        bias = self._rope_table.new_zeros(unseen.shape).masked_fill_(unseen, -torch.inf)
        if places.positions.shape[1] > FEW_TOKENS:
            return bias
        group = self.config.num_heads // self.config.num_kv_heads
        return bias.repeat(1, 1, group, 1)
