"""Which implementation computes a model: this project's decoder, or the transformers library."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..core.checks import check_choice
from ..core.errors import UnavailableError
from .architectures import ARCHITECTURES, named_architecture
from .json_object import read_json
from .language_model import TransformerModel
from .loader import check_device, load_model

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
    """Load a checkpoint directory; all but the adapter is as in `load_model`.

    Args:
        directory: the checkpoint.
        adapter: one of `ADAPTERS`.
        dtype: of the weights and logits.
        device: where to compute.
        max_model_len: how many positions a sequence may have.
        forward: transformers has no other than torch's.

    Raises:
        CheckpointError: a file is missing, damaged or unsupported.
        InvalidInputError: another argument is unfit.
        UnavailableError: the device, the forward or transformers is not there.
    """
    check_choice("adapter", adapter, ADAPTERS)
    if not _is_for_library(directory, adapter):
        return load_model(
            directory, dtype=dtype, device=device, max_model_len=max_model_len, forward=forward
        )
    if find_spec("transformers") is None:
        raise UnavailableError(f"adapter transformers: {_EXTRA}")
    if forward == "triton":
        raise UnavailableError("forward triton: expected the adapter own, got transformers")
    from .library_model.loader import load_library_model  # noqa: PLC0415, an extra

    device = check_device(device)
    return load_library_model(directory, dtype=dtype, device=device, max_model_len=max_model_len)


def _is_for_library(directory: Path, adapter: str) -> bool:
    if adapter != "auto":
        return adapter == "transformers"
    name = named_architecture(read_json(directory / "config.json"))
    # A config that names none is refused in the words of this project's decoder.
    return name is not None and name not in ARCHITECTURES
