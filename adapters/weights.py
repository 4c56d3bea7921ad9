"""Builds a decoder from a checkpoint's tensors: their names, shapes and layout in memory.

Query, key and value projections are stacked into one, and so are gate and up. An unexpected tensor
is an error.
"""

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from attrs import field, frozen
from torch import Tensor

from ..core.checks import check_integer, check_integers, check_tensor
from ..core.errors import CheckpointError, InvalidInputError
from .checkpoint import Checkpoint, Entry, Shape
from .error_text import unfit
from .model_config import ModelConfig
from .transformer import MLP, Attention, Decoder, Layer, Linear, RMSNorm

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"
ATTENTION_NORM, MLP_NORM = "input_layernorm.weight", "post_attention_layernorm.weight"
LAYER = "model.layers.{}."
DRAFT_TO_TARGET = "d2t"
"""For each id of a draft model that has fewer ids than its target: target id minus draft id."""

STANDARD_DEVIATION = 0.02
"""Llama's initialisation: activations and logits stay of the order of 1."""

_ADDED_TO_HIDDEN = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


@frozen
class RandomTensors:
    """Normally distributed matrices and biases; norms are 1. A name always gives the same tensor.

    Attributes:
        directory: the directory that errors name.
        shapes: the shapes of all tensors; loaders add those that they expect.
        seed: other seeds give other weights.
        layer_decay: the ratio of what a layer adds to the hidden state to what the one before adds.
            Below 1 the first layers predict nearly what all of them do, as in trained models.
    """

    directory: Path
    shapes: dict[str, Shape]
    dtype: torch.dtype
    device: torch.device
    seed: int
    layer_decay: float = 1.0

    @property
    def entries(self) -> Mapping[str, Entry]:
        """An entry for every tensor that was expected so far."""
        return {name: Entry(self.directory, shape, "") for name, shape in self.shapes.items()}

    def check(self, expected: Mapping[str, Shape]) -> None:
        """Note the shapes that a loader expects."""
        self.shapes.update(expected)

    def tensor(self, name: str) -> Tensor:
        """The tensor of this name."""
        shape = self.shapes[name]
        if name == DRAFT_TO_TARGET:
            return torch.zeros(shape, dtype=torch.int64)
        if "norm." in name:
            return torch.ones(shape, dtype=self.dtype, device=self.device)
        generator = torch.Generator(self.device)
        generator.manual_seed(zlib.crc32(f"{self.seed} {name}".encode()))
        drawn = torch.empty(shape, dtype=self.dtype, device=self.device)
        return drawn.normal_(std=STANDARD_DEVIATION * self._share(name), generator=generator)

    def _share(self, name: str) -> float:
        _, _, rest = name.partition("model.layers.")
        if not rest.endswith(_ADDED_TO_HIDDEN):
            return 1.0
        return float(self.layer_decay ** int(rest.partition(".")[0]))


Tensors = Checkpoint | RandomTensors
"""The source of weights; the tensors that `expected_tensors` names have been checked there."""


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
    """Reads tensors into one dtype, on one device, and notes their names and shapes.

    Attributes:
        checkpoint: their source; None to find out which would be read, see `expected_tensors`.
        asked: name -> shape of every tensor read so far.
    """

    checkpoint: Tensors | None
    config: ModelConfig
    dtype: torch.dtype
    device: torch.device
    asked: dict[str, Shape] = field(factory=dict, init=False)

    def decoder(self) -> Decoder:
        """The whole model."""
        return Decoder(
            embedding=self.tensor(EMBEDDING, self.config.vocab_size, self.config.hidden_size),
            layers=tuple(self._layer(index) for index in range(self.config.num_layers)),
            norm=self.norm(FINAL_NORM),
            lm_head=self._lm_head(),
        )

    def _layer(self, index: int) -> Layer:
        prefix, size = LAYER.format(index), self.config.hidden_size
        return Layer(
            attention_norm=self.norm(prefix + ATTENTION_NORM),
            attention=self.attention(prefix, self.config.windows[index], size),
            mlp_norm=self.norm(prefix + MLP_NORM),
            mlp=self.mlp(prefix),
        )

    def mlp(self, prefix: str) -> MLP:
        """The feed-forward half of a layer."""
        config, prefix = self.config, prefix + "mlp."
        size, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        gate_up = {prefix + "gate_proj": inner, prefix + "up_proj": inner}
        return MLP(
            gate_up=self.linear(gate_up, size, bias=bias),
            down=self.linear({prefix + "down_proj": size}, inner, bias=bias),
        )

    def attention(self, prefix: str, window: int | None, num_inputs: int) -> Attention:
        """The attention of a layer, which is fed vectors of num_inputs."""
        config, prefix, head_dim = self.config, prefix + "self_attn.", self.config.head_dim
        queries, keys = config.num_heads * head_dim, config.num_kv_heads * head_dim
        qkv = {f"{prefix}{side}_proj": keys for side in "qkv"} | {prefix + "q_proj": queries}
        output = {prefix + "o_proj": config.hidden_size}
        names = [f"{prefix}{side}_norm.weight" for side in "qk" if config.qk_norm]
        norms = [self.norm(name, head_dim) for name in names]
        return Attention(
            head_dim=head_dim,
            window=window,
            qkv=self.linear(qkv, num_inputs, bias=config.qkv_bias),
            output=self.linear(output, queries, bias=config.output_bias),
            head_norms=(norms[0], norms[1]) if norms else None,
        )

    def _lm_head(self) -> Linear:
        """The LM head; a tied one is a second copy on CPU, where the layouts differ."""
        size, num_ids = self.config.hidden_size, self.config.vocab_size
        if not self.config.tie_word_embeddings:
            return Linear(self._matrix({LM_HEAD: num_ids}, size))
        if self.checkpoint is not None and LM_HEAD in self.checkpoint.entries:
            read = self.checkpoint.tensor
            if not torch.equal(read(EMBEDDING), read(LM_HEAD)):
                where = f"{self.checkpoint.entries[LM_HEAD].file}: {LM_HEAD}"
                expected = f"{EMBEDDING} again, because the config ties them"
                raise unfit(where, expected, "other values")
        return Linear(self._matrix({EMBEDDING: num_ids}, size))

    def linear(self, rows: Mapping[str, int], columns: int, *, bias: bool) -> Linear:
        """Projections with this many rows each, stacked."""
        weight = self._matrix({f"{name}.weight": size for name, size in rows.items()}, columns)
        if not bias:
            return Linear(weight)
        stacked = torch.empty(sum(rows.values()), dtype=self.dtype, device=self.device)
        return Linear(
            weight, self._fill(stacked, {f"{name}.bias": size for name, size in rows.items()})
        )

    def norm(self, name: str, size: int | None = None) -> RMSNorm:
        """A norm of this name, of hidden states or of vectors of another size."""
        weight = self.tensor(name, self.config.hidden_size if size is None else size)
        return RMSNorm(weight, self.config.rms_norm_eps)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A tensor in the file's own layout."""
        # Always copied: overwriting the file must not change a loaded model.
        return self._stored(name, shape).to(self.device, self.dtype, copy=True)

    def _stored(self, name: str, shape: Shape) -> Tensor:
        self.asked[name] = shape
        if self.checkpoint is None:
            return torch.empty(shape, device="meta")
        return self.checkpoint.tensor(name)

    def _matrix(self, rows: Mapping[str, int], columns: int) -> Tensor:
        """Matrices with this many rows each, stacked: [out, in]."""
        return self._fill(self._empty(sum(rows.values()), columns), rows, columns)

    def _fill(self, stacked: Tensor, rows: Mapping[str, int], *columns: int) -> Tensor:
        # `torch.cat` on meta would import torch's compiler, which takes seconds.
        for place, (name, size) in zip(stacked.split([*rows.values()]), rows.items(), strict=True):
            place.copy_(self._stored(name, (size, *columns)))
        return stacked

    def _empty(self, rows: int, columns: int) -> Tensor:
        if self.device.type != "cpu":
            return torch.empty(rows, columns, dtype=self.dtype, device=self.device)
        # Stored by columns, because verifying multiplies a few tokens: on CPU a product with rows
        # gets two to three times slower from three to four tokens; with columns its time stays
        # nearly the same up to eight.
        return torch.empty(columns, rows, dtype=self.dtype).t()


def expected_tensors(
    config: ModelConfig, read: Callable[[WeightReader], object] = WeightReader.decoder
) -> dict[str, Shape]:
    """The names and shapes of the tensors that would be read from a checkpoint."""
    reader = WeightReader(None, config, torch.float32, torch.device("meta"))
    read(reader)
    return reader.asked
