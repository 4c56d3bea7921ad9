"""Models of a real one's shape with random weights, to measure speed without a download.

Their text means nothing, so acceptance must be set, not measured.
"""

from pathlib import Path

import torch
from attrs import evolve

from ..core.checks import check_device, check_integer, check_number
from .language_model import TransformerModel
from .model_config import ModelConfig, context_of
from .weights import RandomTensors, WeightReader, expected_tensors


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
    device = check_device(device)
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
