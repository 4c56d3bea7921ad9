"""Loads a model from a directory or hub id in one call, by this project's code or transformers'.

This project's decoder takes float32, bfloat16 or float16 weights; quantised ones are an error.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ..core.checks import FLOATS, check_choice, check_device
from ..core.errors import InvalidInputError, UnavailableError
from .checkpoint import FLOAT_DTYPES, Checkpoint, find_directory
from .error_text import unfit
from .forward_choice import FORWARDS
from .json_object import JsonObject, read_json
from .language_model import TransformerModel
from .model_config import ARCHITECTURES, ModelConfig, context_of, named_architecture
from .random_weights import random_model
from .weights import EMBEDDING, LM_HEAD, WeightReader, expected_tensors


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
        dtype: the dtype of weights and logits; None means float32 on CPU, where it is fastest, and
            the checkpoint's own elsewhere.
        device: where to compute.
        max_model_len: how many positions a sequence may have; None means all that the model was
            made for.
        forward: `triton` for Triton's kernels in decode steps on a GPU, `torch` for torch's
            libraries, `auto` for Triton's kernels where they apply.

    Raises:
        CheckpointError: a file is missing, damaged or unsupported.
        InvalidInputError: dtype, device, max_model_len or forward is unfit.
        UnavailableError: the device is missing, or the forward cannot run on it, or huggingface_hub
            is needed and missing.
    """
    device = check_device(device)
    check_choice("forward", forward, FORWARDS)
    if dtype is not None and dtype not in FLOATS:
        raise InvalidInputError(f"dtype: expected float32, bfloat16 or float16, got {dtype}")
    directory = find_directory(path_or_hub_id)
    config = ModelConfig.read(directory / "config.json")
    max_model_len = context_of(max_model_len, config.max_position_embeddings)
    checkpoint = Checkpoint.open(directory)
    checkpoint.check(expected_tensors(config), {LM_HEAD})
    if dtype is None:
        stored = config.dtype or FLOAT_DTYPES[checkpoint.entries[EMBEDDING].dtype]
        dtype = torch.float32 if device.type == "cpu" else stored
    decoder = WeightReader(checkpoint, config, dtype, device).decoder()
    return TransformerModel(config, decoder, max_model_len, wanted_forward=forward)


if TYPE_CHECKING:
    from .library_model.model import LibraryModel

AnyModel: TypeAlias = "TransformerModel | LibraryModel"
ADAPTERS = ("auto", "own", "transformers")
"""The choices; auto takes this project's decoder for the architectures that it has."""


def load_any_model(
    directory: Path,
    *,
    adapter: str = "auto",
    device: torch.device | str = "cpu",
    forward: str = "auto",
    **how: Any,
) -> AnyModel:
    """Load a checkpoint directory by one of `ADAPTERS`; all else is as in `load_model`.

    The transformers library has no other forward than torch's.
    """
    check_choice("adapter", adapter, ADAPTERS)
    is_for_us = adapter == "auto" and _is_ours(read_json(directory / "config.json"))
    if adapter == "own" or is_for_us:
        return load_model(directory, device=device, forward=forward, **how)
    library, device = _library(forward), check_device(device)
    model: LibraryModel = library.load_library_model(directory, device=device, **how)
    return model


def random_any_model(
    config_file: Path, *, layer_decay: float = 1.0, forward: str = "auto", **how: Any
) -> AnyModel:
    """A model of a config.json's shape with random weights.

    The arguments are those of `acceptor.adapters.random_weights.random_model`.
    """
    if _is_ours(read_json(config_file)):
        return random_model(config_file, layer_decay=layer_decay, forward=forward, **how)
    library = _library(forward)
    if layer_decay != 1:
        raise UnavailableError("layer_decay: expected the adapter own, got transformers")
    model: LibraryModel = library.random_library_model(config_file, **how)
    return model


def _is_ours(config: JsonObject) -> bool:
    # If a config names none, this project's decoder raises the error.
    return named_architecture(config) in (None, *ARCHITECTURES)


def _library(forward: str) -> Any:
    if find_spec("transformers") is None:
        got = "none; install with: pip install 'acceptor[transformers]'"
        raise unfit("adapter transformers", "transformers", got, UnavailableError)
    if forward == "triton":
        raise UnavailableError("forward triton: expected the adapter own, got transformers")
    from .library_model import loader  # noqa: PLC0415, an extra

    return loader
