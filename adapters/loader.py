"""One call from a directory or hub id to a model that runs.

Weights are float32, bfloat16 or float16; quantised ones are an error.
"""

from pathlib import Path

import torch

from ..core.checks import FLOATS, check_choice, check_integer, known_device
from ..core.errors import InvalidInputError
from .checkpoint import FLOAT_DTYPES, Checkpoint, find_directory
from .forward_choice import FORWARDS
from .language_model import TransformerModel
from .model_config import ModelConfig
from .weights import EMBEDDING, WeightReader, expected_tensors, ignored_tensors


def load_model(
    path_or_hub_id: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    max_model_len: int | None = None,
    forward: str = "auto",
) -> TransformerModel:
    """Load a checkpoint directory.

    Args:
        path_or_hub_id: a local directory, or `owner/name` on the Hugging Face hub.
        dtype: of the weights and logits; None means float32 on CPU, where it is fastest, and the
            checkpoint's own elsewhere.
        device: where to compute.
        max_model_len: how many positions a sequence may have; None means all that the model was
            made for.
        forward: `triton` for kernels that compute decode steps on a GPU, `torch` for torch's
            libraries, `auto` for Triton's where they apply.

    Raises:
        CheckpointError: a file is missing, damaged or unsupported.
        InvalidInputError: dtype, device, max_model_len or forward is unfit.
        UnavailableError: the device is not there, or the forward cannot be used on it, or
            huggingface_hub is needed and missing.
    """
    device = check_device(device)
    check_choice("forward", forward, FORWARDS)
    if dtype is not None and dtype not in FLOATS:
        raise InvalidInputError(f"dtype: expected float32, bfloat16 or float16, got {dtype}")
    directory = find_directory(path_or_hub_id)
    config = ModelConfig.read(directory / "config.json")
    longest = config.max_position_embeddings
    max_model_len = longest if max_model_len is None else max_model_len
    check_integer("max_model_len", max_model_len, 1, longest)
    checkpoint = Checkpoint.open(directory)
    checkpoint.check(expected_tensors(config), ignored_tensors(config))
    if dtype is None:
        stored = config.dtype or FLOAT_DTYPES[checkpoint.entries[EMBEDDING].dtype]
        dtype = torch.float32 if device.type == "cpu" else stored
    decoder = WeightReader(checkpoint, config, dtype, device).decoder()
    return TransformerModel(config, decoder, max_model_len, wanted_forward=forward)


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
