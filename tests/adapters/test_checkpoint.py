"""Finding a model's files, and errors about bad ones."""

import json
import pickle
import shutil
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from acceptor.adapters import find_directory, load_model
from acceptor.core import CheckpointError, UnavailableError
from kit.checkpoints import edit_json, edit_tensors

UP = "model.layers.1.mlp.up_proj.weight"
EMBEDDING = "model.embed_tokens.weight"
INDEX = "model.safetensors.index.json"


def split(directory: Path) -> dict[str, str]:
    """Turn the single file into two shards and an index; returns the weight map."""
    tensors = load_file(directory / "model.safetensors")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    (directory / "model.safetensors").unlink()
    weight_map = {name: f"part-{len(name) % 2}.safetensors" for name in tensors}
    for shard in set(weight_map.values()):
        part = {name: tensor for name, tensor in tensors.items() if weight_map[name] == shard}
        save_file(part, directory / shard)
    write_index(directory, weight_map)
    return weight_map


def write_index(directory: Path, weight_map: object) -> None:
    (directory / INDEX).write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")


def assert_refused(directory: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^.*{message}.*\Z"):
        load_model(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(UP), rf"{UP}: expected shape \[40, 32\], got no such tensor$"),
        (
            lambda t: [t.pop(name) for name in list(t) if "layers.1" in name],
            r"model\.layers\.1\..*: expected shape .*, got no such tensor \(and 8 more like it\)",
        ),
        (
            lambda t: t.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(2)}),
            r"model\.safetensors: model\.layers\.2\.mlp\.up_proj\.weight: expected no such tensor",
        ),
        (
            lambda t: t.update({UP: torch.zeros(32, 40)}),
            rf"model\.safetensors: {UP}: expected shape \[40, 32\], got \[32, 40\]",
        ),
        (
            lambda t: t.update({UP: torch.zeros(40, 32, dtype=torch.int8)}),
            rf"model\.safetensors: {UP}: expected dtype F32 or BF16 or F16, got I8",
        ),
    ],
)
def test_tensors_that_do_not_fit(
    checkpoint: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    edit_tensors(checkpoint, change)
    assert_refused(checkpoint, message)


def test_stored_rotary_frequencies_are_ignored(checkpoint: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(checkpoint, lambda tensors: tensors.update({name: torch.ones(3)}))
    load_model(checkpoint)


def test_a_tied_head_may_be_stored_but_not_differ(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", tie_word_embeddings=True)
    edit_tensors(checkpoint, lambda t: t.update({"lm_head.weight": t[EMBEDDING].clone()}))
    load_model(checkpoint)
    edit_tensors(checkpoint, lambda t: t["lm_head.weight"].add_(1))
    assert_refused(checkpoint, r"lm_head\.weight: expected model\.embed_tokens\.weight again")


@pytest.mark.parametrize(
    "damage",
    [
        *(slice(kept) for kept in (0, 4, 100, -1)),
        (2**40).to_bytes(8, "little"),
        (60).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","shape":[9999999],"data_offsets":[0,4]}}'.ljust(60)
        + bytes(4),
    ],
)
def test_damaged_files(checkpoint: Path, damage: slice | bytes) -> None:
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[damage] if isinstance(damage, slice) else damage)
    assert_refused(checkpoint, r"model\.safetensors: expected a safetensors file, got ")


def test_any_flipped_header_byte_is_survived(checkpoint: Path) -> None:
    """A damaged header ends in our error or in a model."""
    file = checkpoint / "model.safetensors"
    whole = file.read_bytes()
    for place in range(0, 600, 23):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x15]) + whole[place + 1 :])
        try:
            load_model(checkpoint)
        except CheckpointError as error:
            assert "\n" not in str(error)  # noqa: PT017, most places raise, a few do not


def test_a_directory_without_weights(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    expected = rf"expected model\.safetensors or {INDEX}"
    assert_refused(checkpoint, rf"model: {expected}, got neither")


class Bomb:
    """A pickle of this writes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_pickles_are_never_opened(checkpoint: Path) -> None:
    bomb, witness = pickle.dumps(Bomb(checkpoint / "ran")), checkpoint / "ran"
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(bomb)
    assert_refused(checkpoint, r"got pytorch_model\.bin, a pickle, which is never opened")
    (checkpoint / "model.safetensors").write_bytes(bomb)
    assert_refused(checkpoint, "expected a safetensors file")
    assert not witness.exists()


def test_code_beside_the_weights_never_runs(checkpoint: Path) -> None:
    (checkpoint / "modeling_evil.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    auto_map = {"AutoModelForCausalLM": "modeling_evil.Model"}
    edit_json(checkpoint / "config.json", auto_map=auto_map)
    load_model(checkpoint)


def test_shards_are_read(checkpoint: Path) -> None:
    whole = load_model(checkpoint).decoder.layers[1].mlp.down.weight
    split(checkpoint)
    assert torch.equal(load_model(checkpoint).decoder.layers[1].mlp.down.weight, whole)


@pytest.mark.parametrize(
    "shard",
    [
        "../outside.safetensors",
        "/etc/passwd.safetensors",
        "..\\outside.safetensors",
        "c:outside.safetensors",
        "part\0.safetensors",
        "",
        7,
    ],
)
def test_shards_outside_the_directory(checkpoint: Path, shard: object) -> None:
    weight_map = split(checkpoint)
    shutil.copy(checkpoint / weight_map[UP], checkpoint / "../outside.safetensors")
    write_index(checkpoint, weight_map | {UP: shard})
    assert_refused(checkpoint, rf"weight_map: {UP}: expected a \.safetensors file beside the index")


def test_an_index_that_disagrees_with_the_shards(checkpoint: Path) -> None:
    weight_map = split(checkpoint)
    write_index(checkpoint, weight_map | {UP: "a" * 300 + ".safetensors"})
    assert_refused(checkpoint, r"aaa …: expected a safetensors file, got .* name too long")
    other = {"part-0.safetensors", "part-1.safetensors"} - {weight_map[UP]}
    write_index(checkpoint, weight_map | {UP: other.pop()})
    assert_refused(checkpoint, rf"weight_map: {UP}: expected part-.*, which is where it is")
    write_index(checkpoint, {name: shard for name, shard in weight_map.items() if name != UP})
    assert_refused(checkpoint, rf"weight_map: {UP}: expected part-.*, got nothing")
    write_index(checkpoint, weight_map | {"ghost": weight_map[UP]})
    assert_refused(checkpoint, "weight_map: ghost: expected nothing, .*got part-")


def test_an_index_without_its_shards(checkpoint: Path) -> None:
    weight_map = split(checkpoint)
    (checkpoint / weight_map[UP]).unlink()
    assert_refused(checkpoint, rf"{weight_map[UP]}: expected a safetensors file, got none")
    write_index(checkpoint, {})
    assert_refused(checkpoint, "weight_map: expected at least one tensor, got nothing")
    write_index(checkpoint, [1])
    assert_refused(checkpoint, r"weight_map: expected an object, got \[1\]")


def test_a_model_does_not_change_with_its_file(checkpoint: Path) -> None:
    model = load_model(checkpoint)
    before = model.decoder.norm.weight.clone()
    file = checkpoint / "model.safetensors"
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.seek(size // 2)
        stream.write(bytes(size - size // 2))
    assert torch.equal(model.decoder.norm.weight, before)


Hub = Callable[[Callable[[list[str]], object] | None], None]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Put a huggingface_hub in place whose download does this with patterns, or none."""

    def put(download: Callable[[list[str]], object] | None) -> None:
        def snapshot_download(hub_id: str, *, allow_patterns: list[str]) -> str:
            assert hub_id == "owner/name-1.5"
            assert download is not None
            return str(download(allow_patterns))

        there = SimpleNamespace(snapshot_download=snapshot_download)
        monkeypatch.setitem(sys.modules, "huggingface_hub", there if download else None)

    return put


def test_a_directory_comes_first(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub(None)
    monkeypatch.chdir(tmp_path)
    Path("owner/name").mkdir(parents=True)
    assert find_directory("owner/name") == Path("owner/name")
    assert find_directory(tmp_path) == tmp_path


def test_the_hubs_error_is_one_line(hub: Hub) -> None:
    def fail(_: list[str]) -> None:
        raise OSError("Got: 404\n\n  not found")

    hub(fail)
    expected = r"^owner/name-1\.5: expected a model on the Hugging Face hub, got 404 not found$"
    with pytest.raises(CheckpointError, match=expected):
        find_directory("owner/name-1.5")


def test_a_hub_id_without_the_library(hub: Hub) -> None:
    hub(None)
    with pytest.raises(UnavailableError, match=r'pip install "acceptor\[hub\]"'):
        find_directory("owner/name-1.5")


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_pickle_is_fetched_of_drafts_only_and_where_there_is_no_safetensors(
    tmp_path: Path, hub: Hub, weights: str
) -> None:
    def download(patterns: list[str]) -> Path:
        for name in ("config.json", "modeling.py", weights):
            if any(fnmatch(name, pattern) for pattern in patterns):
                (tmp_path / name).touch()
        return tmp_path

    hub(download)
    assert find_directory("owner/name-1.5") == tmp_path
    assert (tmp_path / weights).exists() == weights.endswith(".safetensors")
    assert find_directory("owner/name-1.5", of_draft=True) == tmp_path
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", weights}


@pytest.mark.parametrize("path", ["nowhere", "/no/where", "a/b/c"])
def test_neither(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    hub(None)
    inner = tmp_path / "empty" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    with pytest.raises(CheckpointError, match="expected a directory or a hub id, got nothing"):
        find_directory(path)


def test_a_name_that_no_system_takes() -> None:
    with pytest.raises(CheckpointError, match="expected a directory or a hub id, got File name"):
        find_directory("a" * 5000)
