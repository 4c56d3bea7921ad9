"""From a checkpoint's tensors to a decoder: their names, their shapes, their layout in memory.

Query, key and value projections are stacked into one, and so are gate and up. A tensor that is not
expected is an error.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

from ..core.checks import check_integer, check_integers, check_tensor, known_device
from ..core.errors import CheckpointError, InvalidInputError
from .checkpoint import Entry, Shape
from .error_text import unfit
from .model_config import ModelConfig
from .transformer import MLP, Attention, Decoder, Layer, Linear, RMSNorm

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"
DRAFT_TO_TARGET = "d2t"
"""Of a draft model with fewer ids than its target: target id minus draft id, of each draft id."""


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """Name -> shape of every tensor that a checkpoint of this model holds."""
    vocab, hidden = config.vocab_size, config.hidden_size
    tensors: dict[str, Shape] = {EMBEDDING: (vocab, hidden), FINAL_NORM: (hidden,)}
    if not config.tie_word_embeddings:
        tensors[LM_HEAD] = (vocab, hidden)
    for index in range(config.num_layers):
        tensors |= layer_tensors(config, f"model.layers.{index}.", hidden)
    return tensors


def layer_tensors(config: ModelConfig, prefix: str, num_inputs: int) -> dict[str, Shape]:
    """The same of one layer, whose attention is fed vectors of num_inputs."""
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_heads * head_dim, config.num_kv_heads * head_dim
    tensors: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if config.qk_norm:
        tensors |= {f"self_attn.{side}_norm.weight": (head_dim,) for side in "qk"}
    for name, rows, columns, bias in (
        ("self_attn.q_proj", queries, num_inputs, config.qkv_bias),
        ("self_attn.k_proj", keys, num_inputs, config.qkv_bias),
        ("self_attn.v_proj", keys, num_inputs, config.qkv_bias),
        ("self_attn.o_proj", hidden, queries, config.output_bias),
        ("mlp.gate_proj", inner, hidden, config.mlp_bias),
        ("mlp.up_proj", inner, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, inner, config.mlp_bias),
    ):
        tensors[f"{name}.weight"] = (rows, columns)
        if bias:
            tensors[f"{name}.bias"] = (rows,)
    return {prefix + name: shape for name, shape in tensors.items()}


def ignored_tensors(config: ModelConfig) -> frozenset[str]:
    """Names that a checkpoint may hold, and that the model does not need."""
    frequencies = {
        f"model.layers.{index}.self_attn.rotary_emb.inv_freq" for index in range(config.num_layers)
    }
    return frozenset(frequencies | {LM_HEAD, DRAFT_TO_TARGET, "t2d"})


def check_device(device: torch.device | str) -> torch.device:
    """The CPU or CUDA device of this name.

    Raises:
        InvalidInputError: it is neither the CPU nor a CUDA device.
        UnavailableError: there is no such CUDA device.
    """
    device = known_device(device)
    if device.type not in ("cpu", "cuda"):
        raise InvalidInputError(f"device: expected cpu or cuda, got {device}")
    return device


class Tensors(Protocol):
    """Where weights come from: a checked `acceptor.adapters.checkpoint.Checkpoint`, or chance."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """What is stored, and in which file."""

    def tensor(self, name: str) -> Tensor:
        """The tensor of this name, one of `expected_tensors`."""


def read_draft_ids(checkpoint: Tensors, num_draft_ids: int, target_vocab_size: int) -> Tensor:
    """[num_draft_ids] int64, the target's id of each draft id."""
    offsets = checkpoint.tensor(DRAFT_TO_TARGET)
    try:
        check_tensor("offsets", offsets, (num_draft_ids,), (torch.int64,))
        target_ids = torch.arange(num_draft_ids) + offsets
        check_integers("target_ids", target_ids.tolist(), 0, target_vocab_size - 1)
        num_different = len(target_ids.unique())
        check_integer("target_ids: different ones", num_different, num_draft_ids, num_draft_ids)
    except InvalidInputError as error:
        file = checkpoint.entries[DRAFT_TO_TARGET].file
        raise CheckpointError(f"{file}: {DRAFT_TO_TARGET}: {error}") from None
    return target_ids


@frozen
class WeightReader:
    """Reads tensors into one dtype, on one device."""

    checkpoint: Tensors
    config: ModelConfig
    dtype: torch.dtype
    device: torch.device

    def decoder(self) -> Decoder:
        """All of the model."""
        return Decoder(
            embedding=self.vector(EMBEDDING),
            layers=tuple(self._layer(index) for index in range(self.config.num_layers)),
            norm=self.norm(FINAL_NORM),
            lm_head=self._lm_head(),
        )

    def _layer(self, index: int) -> Layer:
        prefix = f"model.layers.{index}."
        return Layer(
            attention_norm=self.norm(prefix + "input_layernorm.weight"),
            attention=self.attention(prefix + "self_attn.", self.config.windows[index]),
            mlp_norm=self.norm(prefix + "post_attention_layernorm.weight"),
            mlp=self.mlp(prefix + "mlp."),
        )

    def mlp(self, prefix: str) -> MLP:
        """The feed-forward half of a layer."""
        bias = self.config.mlp_bias
        return MLP(
            gate_up=self.linear((prefix + "gate_proj", prefix + "up_proj"), bias=bias),
            down=self.linear((prefix + "down_proj",), bias=bias),
        )

    def attention(self, prefix: str, window: int | None) -> Attention:
        """The attention of a layer."""
        config = self.config
        qkv = [f"{prefix}{side}_proj" for side in "qkv"]
        norms = [self.norm(f"{prefix}{side}_norm.weight") for side in "qk" if config.qk_norm]
        return Attention(
            head_dim=config.head_dim,
            window=window,
            qkv=self.linear(qkv, bias=config.qkv_bias),
            output=self.linear((prefix + "o_proj",), bias=config.output_bias),
            head_norms=(norms[0], norms[1]) if norms else None,
        )

    def _lm_head(self) -> Linear:
        """The LM head; a tied one is a second copy on CPU, where the layouts differ."""
        if not self.config.tie_word_embeddings:
            return Linear(self._matrix((LM_HEAD,)))
        read, entry = self.checkpoint.tensor, self.checkpoint.entries.get(LM_HEAD)
        if entry is not None and not torch.equal(read(EMBEDDING), read(LM_HEAD)):
            expected = f"{EMBEDDING} again, because the config ties them"
            raise unfit(f"{entry.file}: {LM_HEAD}", expected, "other values")
        return Linear(self._matrix((EMBEDDING,)))

    def linear(self, names: Sequence[str], *, bias: bool) -> Linear:
        """Projections stacked by rows."""
        weight = self._matrix([f"{name}.weight" for name in names])
        if not bias:
            return Linear(weight)
        return Linear(weight, torch.cat([self.vector(f"{name}.bias") for name in names]))

    def norm(self, name: str) -> RMSNorm:
        """A norm of this name."""
        return RMSNorm(self.vector(name), self.config.rms_norm_eps)

    def vector(self, name: str) -> Tensor:
        """A tensor of any shape, in the file's own layout."""
        # Copied even when nothing changes: a file that is overwritten must not change a model.
        return self.checkpoint.tensor(name).to(self.device, self.dtype, copy=True)

    def _matrix(self, names: Sequence[str]) -> Tensor:
        """Matrices stacked by rows: [out, in]."""
        parts = [self.checkpoint.tensor(name) for name in names]
        sizes = [len(part) for part in parts]
        stacked = self._empty(sum(sizes), parts[0].shape[1])
        for place, part in zip(torch.split(stacked, sizes), parts, strict=True):
            place.copy_(part)
        return stacked

    def _empty(self, rows: int, columns: int) -> Tensor:
        if self.device.type != "cpu":
            return torch.empty(rows, columns, dtype=self.dtype, device=self.device)
        # Stored by columns: on CPU a product with rows gets two to three times slower from three to
        # four tokens, with columns it stays nearly flat up to eight, and verifying is a product
        # with a few tokens.
        return torch.empty(columns, rows, dtype=self.dtype).t()
