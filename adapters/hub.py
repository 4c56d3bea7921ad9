"""Finds a checkpoint: a local directory, or one downloaded from the Hugging Face hub.

Only weights in safetensors, JSON files and chat templates are downloaded, and of a draft without
safetensors its pickle.
"""

import re
from pathlib import Path

from ..core.errors import CheckpointError, UnavailableError
from .error_text import one_line

FETCHED_FILES = [
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
]
PICKLE = "pytorch_model.bin"
"""In which the first draft heads came."""

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def find_directory(path_or_hub_id: str | Path, *, of_draft: bool = False) -> Path:
    """The local directory of a checkpoint; a hub id's is downloaded unless it is in the cache.

    A directory that exists is taken first; else a string `owner/name` is a hub id.

    Args:
        path_or_hub_id: where it is.
        of_draft: whether `pytorch_model.bin` will do where there is no safetensors.

    Raises:
        CheckpointError: there is no such directory, or the hub does not give it.
        UnavailableError: a hub id needs huggingface_hub, which is not installed.
    """
    path = Path(path_or_hub_id)
    try:
        if path.is_dir():
            return path
        got = "a file" if path.exists() else "nothing there"
    except OSError as error:
        # A name may be too long, and a directory above it closed.
        got = str(error.strerror)
    is_hub_id = isinstance(path_or_hub_id, str) and _HUB_ID.fullmatch(path_or_hub_id)
    if is_hub_id and got == "nothing there":
        return _download(str(path_or_hub_id), of_draft=of_draft)
    said = one_line(path_or_hub_id)
    raise CheckpointError(f"{said}: expected a directory or a hub id, got {got}")


def _download(hub_id: str, *, of_draft: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415, optional
    except ImportError:
        raise UnavailableError(
            f"{hub_id}: no such directory, and a hub id needs huggingface_hub: "
            'pip install "acceptor[hub]"'
        ) from None
    try:
        directory = Path(snapshot_download(hub_id, allow_patterns=FETCHED_FILES))
        if of_draft and not any(directory.glob("*.safetensors")):
            snapshot_download(hub_id, allow_patterns=[PICKLE])
    # The hub's errors are OSError (network, not found, gated) and ValueError (malformed id).
    except (OSError, ValueError) as error:
        said = one_line(error).removeprefix("Got: ")
        raise CheckpointError(
            f"{hub_id}: expected a model on the Hugging Face hub, got {said}"
        ) from None
    return directory
