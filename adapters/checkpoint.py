"""A checkpoint's directory, local or from the Hugging Face hub, and its tensors, memory-mapped.

Only safetensors weights, JSON files and chat templates are downloaded; for a draft without
safetensors its pickle, too. Headers are compared with what the model expects before any weight is
read. Pickles are never opened here, and a shard index cannot lead out of the directory.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..core.errors import UnavailableError
from .error_text import one_line, unfit
from .json_object import read_json

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
"""The format of the first draft heads."""

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def find_directory(path_or_hub_id: str | Path, *, of_draft: bool = False) -> Path:
    """The local directory of a checkpoint; one on the hub is downloaded unless it is in the cache.

    An existing directory is taken first; else a string `owner/name` is a hub id.

    Args:
        path_or_hub_id: the directory or hub id.
        of_draft: whether `pytorch_model.bin` is enough if there is no safetensors file.

    Raises:
        CheckpointError: there is no such directory, or the hub does not provide it.
        UnavailableError: a hub id needs huggingface_hub, which is not installed.
    """
    path = Path(path_or_hub_id)
    try:
        if path.is_dir():
            return path
        got = "a file" if path.exists() else "nothing there"
    except OSError as error:
        # The name may be too long, or a parent directory unreadable.
        got = str(error.strerror)
    is_hub_id = isinstance(path_or_hub_id, str) and _HUB_ID.fullmatch(path_or_hub_id)
    if is_hub_id and got == "nothing there":
        return _download(str(path_or_hub_id), of_draft=of_draft)
    raise unfit(one_line(path_or_hub_id), "a directory or a hub id", got)


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
    # The hub raises OSError (network, not found, gated) and ValueError (malformed id).
    except (OSError, ValueError) as error:
        said = one_line(error).removeprefix("Got: ")
        raise unfit(hub_id, "a model on the Hugging Face hub", said) from None
    return directory


SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
FLOAT_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Dtypes as safetensors spells them. Others are quantised or foreign: a cast does not suffice."""

UNUSED = re.compile(r"d2t|t2d|(.*\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Maps of token ids, which are read separately, and frequencies, which the config gives."""

Shape = tuple[int, ...]


@frozen
class Entry:
    """A file header's entry for one tensor."""

    file: Path
    shape: Shape
    dtype: str


@frozen
class Checkpoint:
    """The tensors of a directory, by name; each is read only when asked for.

    Attributes:
        entries: tensor name -> its file, dtype and shape.
        handles: file -> its memory map, a `safetensors.safe_open`.
    """

    directory: Path
    entries: Mapping[str, Entry]
    handles: Mapping[Path, Any]

    @classmethod
    def open(cls, directory: Path) -> "Checkpoint":
        """Memory-map the single file or all shards, and read their headers."""
        index = _read_index(directory)
        files = {directory / name for name in index.values()} or {_single_file(directory)}
        handles = {file: _map_file(file) for file in sorted(files)}
        entries = {name: entry for file in handles for name, entry in _entries(file, handles[file])}
        if index:
            _check_index(directory, index, entries)
        return cls(directory, entries, handles)

    def check(self, expected: Mapping[str, Shape], ignored: Collection[str] = ()) -> None:
        """Compare headers with the tensors that a model expects; ignored ones may be present.

        So may tensors that no model here needs, see `UNUSED`.
        """
        missing = [name for name in expected if name not in self.entries]
        if missing:
            wanted = f"shape {list(expected[missing[0]])}"
            got = f"no such tensor{_and_more(missing)}"
            raise unfit(f"{self.directory}: {missing[0]}", wanted, got)
        for name, shape in expected.items():
            _check_entry(name, shape, self.entries[name])
        others = [name for name in self.entries if name not in expected and name not in ignored]
        extra = [name for name in others if not UNUSED.fullmatch(name)]
        if extra:
            where = f"{self.entries[extra[0]].file}: {extra[0]}"
            raise unfit(where, "no such tensor", f"one{_and_more(extra)}")

    def tensor(self, name: str) -> Tensor:
        """One tensor, on the CPU, backed by the file."""
        file = self.entries[name].file
        try:
            tensor: Tensor = self.handles[file].get_tensor(name)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise unfit(f"{file}: {name}", "a tensor", error) from None
        return tensor


def _check_entry(name: str, shape: Shape, entry: Entry) -> None:
    where = f"{entry.file}: {name}"
    if entry.shape != shape:
        raise unfit(where, f"shape {list(shape)}", list(entry.shape))
    if entry.dtype not in FLOAT_DTYPES:
        raise unfit(where, f"dtype {' or '.join(FLOAT_DTYPES)}", entry.dtype)


def _and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more like it)" if len(names) > 1 else ""


def _single_file(directory: Path) -> Path:
    file = directory / SINGLE_FILE
    if file.is_file():
        return file
    pickles = sorted(path.name for path in directory.glob("pytorch_model*.bin"))
    got = f"{pickles[0]}, a pickle, which is never opened" if pickles else "neither"
    raise unfit(directory, f"{SINGLE_FILE} or {INDEX_FILE}", got)


_SHARD = re.compile(r"[^/\\:]*\.safetensors")
"""File names that cannot lead out of the directory, nor to a file of another kind."""


def _read_index(directory: Path) -> dict[str, str]:
    """Tensor name -> shard's file name; empty when the checkpoint is a single file."""
    path = directory / INDEX_FILE
    if (directory / SINGLE_FILE).is_file() or not path.is_file():
        return {}
    index = read_json(path)
    weight_map = index.section("weight_map").values
    if not weight_map:
        raise index.error("weight_map", "at least one tensor", None)
    for name, shard in weight_map.items():
        if not (isinstance(shard, str) and shard.isprintable() and _SHARD.fullmatch(shard)):
            raise index.error(f"weight_map: {name}", "a .safetensors file beside the index", shard)
    return weight_map


def _map_file(file: Path) -> Any:
    try:
        if not file.is_file():
            raise unfit(file, "a safetensors file", "none")
        return safe_open(file, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise unfit(one_line(file), "a safetensors file", error) from None


def _entries(file: Path, handle: Any) -> Iterator[tuple[str, Entry]]:
    for name in handle.keys():  # noqa: SIM118, it is no mapping
        view = handle.get_slice(name)
        yield name, Entry(file, tuple(view.get_shape()), view.get_dtype())


def _check_index(directory: Path, index: Mapping[str, str], entries: Mapping[str, Entry]) -> None:
    for name in sorted(index.keys() | entries.keys()):
        want = index.get(name)
        got = entries[name].file.name if name in entries else None
        if want != got:
            where = f"{directory / INDEX_FILE}: weight_map: {name}"
            raise unfit(where, f"{got or 'nothing'}, which is where it is", want or "nothing")
