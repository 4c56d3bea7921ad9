"""Which implementation computes a model: this project's decoder, or the transformers library."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.checks import check_choice
from ..core.errors import UnavailableError
from .json_object import JsonObject, read_json
from .language_model import TransformerModel
from .loader import check_device, load_model
from .model_config import ARCHITECTURES, named_architecture
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
    device: torch.device | str = "cpu",
    forward: str = "auto",
    **how: Any,
) -> "TransformerModel | LibraryModel":
    """Load a checkpoint directory by one of `ADAPTERS`; all else is as in `load_model`.

    The transformers library has no other forward than torch's.
    """
    check_choice("adapter", adapter, ADAPTERS)
    if not _is_for_library(directory, adapter):
        return load_model(directory, device=device, forward=forward, **how)
    library, device = _library(forward), check_device(device)
    model: LibraryModel = library.load_library_model(directory, device=device, **how)
    return model


def random_any_model(
    config_file: Path, *, layer_decay: float = 1.0, forward: str = "auto", **how: Any
) -> "TransformerModel | LibraryModel":
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
