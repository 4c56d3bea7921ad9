"""The files of a draft head: safetensors, or the pickle in which EAGLE's first heads came."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from attrs import frozen
from torch import Tensor

from ...core.errors import CheckpointError
from ..checkpoint import FLOAT_DTYPES, INDEX_FILE, SINGLE_FILE, Checkpoint, Entry
from ..error_text import one_line

PICKLE = "pytorch_model.bin"


@frozen(eq=False)
class _Unpickled:
    tensors: Mapping[str, Tensor]

    def get_tensor(self, name: str) -> Tensor:
        return self.tensors[name]


def has_safetensors(directory: Path) -> bool:
    """Whether there is a file that can be opened without asking."""
    return (directory / SINGLE_FILE).is_file() or (directory / INDEX_FILE).is_file()


def open_head(directory: Path) -> Checkpoint:
    """The tensors of a head, by name.

    Raises:
        CheckpointError: a file is missing or damaged, or a pickle holds anything but tensors.
    """
    file = directory / PICKLE
    if has_safetensors(directory) or not file.is_file():
        return Checkpoint.open(directory)
    try:
        # Runs no code: only tensors and plain containers come out of it.
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, ValueError, EOFError, KeyError) as error:
        raise CheckpointError(f"{file}: expected tensors, got {one_line(error)}") from None
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise CheckpointError(f"{file}: expected tensors by name, got {type(tensors).__name__}")
    spellings = {dtype: spelling for spelling, dtype in FLOAT_DTYPES.items()}
    entries = {
        str(name): Entry(file, tuple(one.shape), spellings.get(one.dtype, str(one.dtype)))
        for name, one in tensors.items()
    }
    return Checkpoint(directory, entries, {file: _Unpickled(tensors)})
