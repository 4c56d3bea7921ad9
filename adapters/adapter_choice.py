"""Which implementation computes a model: this project's decoder, or the transformers library."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from attrs import evolve

from ..core.checks import check_choice, check_integer
from ..core.errors import UnavailableError
from .architectures import ARCHITECTURES, named_architecture
from .json_object import JsonObject, read_json
from .language_model import TransformerModel
from .loader import check_device, load_model
from .random_weights import random_model

if TYPE_CHECKING:
    from .library_model.model import LibraryModel

ADAPTERS = ("auto", "own", "transformers")
"""What can be asked for; with auto, this project's decoder for the architectures that it has."""

_EXTRA = "expected transformers, got none; install with: pip install 'acceptor[transformers]'"


def load_any_model(
    directory: Path,
    *,
    adapter: str = "auto",
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    max_model_len: int | None = None,
    forward: str = "auto",
) -> "TransformerModel | LibraryModel":
    """Load a checkpoint directory by one of `ADAPTERS`; all else is as in `load_model`.

    The transformers library has no other forward than torch's.
    """
    check_choice("adapter", adapter, ADAPTERS)
    if not _is_for_library(directory, adapter):
        return load_model(
            directory, dtype=dtype, device=device, max_model_len=max_model_len, forward=forward
        )
    library, device = _library(forward), check_device(device)
    model: LibraryModel = library.load_library_model(
        directory, dtype=dtype, device=device, max_model_len=max_model_len
    )
    return model


def random_any_model(
    config_file: Path,
    *,
    dtype: torch.dtype | None,
    device: torch.device | str,
    num_layers: int | None = None,
    layer_decay: float = 1.0,
    max_model_len: int | None = None,
    forward: str = "auto",
) -> "TransformerModel | LibraryModel":
    """A model of a config.json's shape with random weights.

    The arguments are those of `acceptor.adapters.random_weights.random_model`.
    """
    config = read_json(config_file)
    if _is_ours(config):
        return random_model(
            config_file,
            dtype=dtype,
            device=device,
            max_model_len=max_model_len,
            num_layers=num_layers,
            layer_decay=layer_decay,
            forward=forward,
        )
    library = _library(forward)
    if layer_decay != 1:
        raise UnavailableError("layer_decay: expected the adapter own, got transformers")
    device = check_device(device)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    most, values = config.integer("num_hidden_layers", 1), dict(config.values)
    if num_layers is not None:
        check_integer("num_layers", num_layers, 1, most)
        values["num_hidden_layers"] = num_layers
    model: LibraryModel = library.random_library_model(
        evolve(config, values=values), dtype=dtype, device=device
    )
    length = model.max_model_len if max_model_len is None else max_model_len
    check_integer("max_model_len", length, 1, model.max_model_len)
    return evolve(model, max_model_len=length)


def _is_for_library(directory: Path, adapter: str) -> bool:
    if adapter != "auto":
        return adapter == "transformers"
    return not _is_ours(read_json(directory / "config.json"))


def _is_ours(config: JsonObject) -> bool:
    # A config that names none is refused in the words of this project's decoder.
    return named_architecture(config) in (None, *ARCHITECTURES)


def _library(forward: str) -> Any:
    if find_spec("transformers") is None:
        raise UnavailableError(f"adapter transformers: {_EXTRA}")
    if forward == "triton":
        raise UnavailableError("forward triton: expected the adapter own, got transformers")
    from .library_model import loader  # noqa: PLC0415, an extra

    return loader
