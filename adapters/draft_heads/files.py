"""The files of a draft head: safetensors, or the pickle in which EAGLE's first heads came."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from ...core.errors import CheckpointError
from ..checkpoint import FLOAT_DTYPES, INDEX_FILE, SINGLE_FILE, Checkpoint, Entry
from ..error_text import one_line
from ..hub import PICKLE


def has_tensors(directory: Path) -> bool:
    """Whether there is a file for `open_head`."""
    return any((directory / name).is_file() for name in (SINGLE_FILE, INDEX_FILE, PICKLE))


def open_head(directory: Path) -> Checkpoint:
    """The tensors of a head, by name; a pickle that holds anything else is refused."""
    file = directory / PICKLE
    is_safe = any((directory / name).is_file() for name in (SINGLE_FILE, INDEX_FILE))
    if is_safe or not file.is_file():
        return Checkpoint.open(directory)
    try:
        # Runs no code: only tensors and plain containers come out of it. Old files are no archives.
        how: dict[str, Any] = {"map_location": "cpu", "mmap": is_zipfile(file)}
        tensors = torch.load(file, weights_only=True, **how)
    except Exception as error:  # noqa: BLE001, a damaged pickle may fail in any way
        said = one_line(error) or type(error).__name__
        raise CheckpointError(f"{file}: expected tensors, got {said}") from None
    if not isinstance(tensors, dict):
        raise CheckpointError(f"{file}: expected tensors by name, got {type(tensors).__name__}")
    for name, one in tensors.items():
        if not _is_whole(one):
            said = f"expected a tensor with all its values, got {type(one).__name__}"
            raise CheckpointError(f"{file}: {one_line(name)}: {said}")
    spellings = {dtype: spelling for spelling, dtype in FLOAT_DTYPES.items()}
    entries = {
        str(name): Entry(file, tuple(one.shape), spellings.get(one.dtype, str(one.dtype)))
        for name, one in tensors.items()
    }
    detached = {str(name): one.detach() for name, one in tensors.items()}
    return Checkpoint(directory, entries, {file: SimpleNamespace(get_tensor=detached.__getitem__)})


def _is_whole(one: object) -> bool:
    """Whether it is a tensor that has a number in the file for each of its places."""
    if not isinstance(one, Tensor) or one.layout != torch.strided or one.is_meta or one.is_nested:
        return False
    return one.numel() * one.element_size() <= one.untyped_storage().nbytes()
