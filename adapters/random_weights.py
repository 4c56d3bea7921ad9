"""Models of a real one's shape with random weights, to measure speed without a download.

Their text means nothing, so acceptance must be set, not measured.
"""

import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from attrs import evolve, frozen
from torch import Tensor

from ..core.checks import check_integer, check_number
from .checkpoint import Entry, Shape
from .language_model import TransformerModel
from .model_config import ModelConfig, context_of
from .weights import DRAFT_TO_TARGET, WeightReader, expected_tensors

STANDARD_DEVIATION = 0.02
"""Llama's initialisation: activations and logits stay of the order of 1."""

_ADDED_TO_HIDDEN = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


@frozen
class RandomTensors:
    """Normally distributed matrices and biases; norms are 1. A name always gives the same tensor.

    Attributes:
        directory: the directory that errors name.
        shapes: the shapes of all tensors; loaders add those that they expect.
        dtype, device: those of the tensors.
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


def random_model(
    config_file: Path,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    max_model_len: int | None = None,
    num_layers: int | None = None,
    seed: int = 0,
    layer_decay: float = 1.0,
    forward: str = "auto",
) -> TransformerModel:
    """A model of the shape that a config.json describes.

    Args:
        config_file: a config.json as Hugging Face writes it; the file may have any name.
        dtype: the weights' dtype; None for float32 on a CPU and the config's own, or bfloat16,
            elsewhere.
        device, max_model_len, forward: as in `load_model`.
        num_layers: a number of layers below the config's.
        seed: the seed of the weights.
        layer_decay: in (0, 1], see `RandomTensors`.
    """
    device = torch.device(device)
    config = ModelConfig.read(config_file)
    if num_layers is not None:
        check_integer("num_layers", num_layers, 1, config.num_layers)
        config = evolve(config, windows=config.windows[:num_layers])
    max_model_len = context_of(max_model_len, config.max_position_embeddings)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else config.dtype or torch.bfloat16
    check_number("layer_decay", layer_decay, 0, 1, open_below=True)
    shapes = expected_tensors(config)
    tensors = RandomTensors(config_file, shapes, dtype, device, seed, layer_decay)
    decoder = WeightReader(tensors, config, dtype, device).decoder()
    return TransformerModel(config, decoder, max_model_len, wanted_forward=forward)
