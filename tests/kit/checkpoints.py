"""Checkpoint directories changed in place."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor


def edit_json(path: Path, **changes: object) -> None:
    """Set fields of a JSON file; a value of ... removes the field."""
    fields = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = {name: value for name, value in (fields | changes).items() if value is not ...}
    path.write_text(json.dumps(kept), encoding="utf-8")


def edit_tensors(directory: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change what model.safetensors holds."""
    file = directory / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def keep_ids(directory: Path, kept: Sequence[int]) -> None:
    """Cut a tied vocabulary to these ids, in this order."""
    name = "model.embed_tokens.weight"
    edit_json(directory / "config.json", vocab_size=len(kept))
    edit_tensors(directory, lambda t: t.update({name: t[name][list(kept)].clone()}))
