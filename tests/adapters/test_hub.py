import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest

from acceptor.adapters import find_directory
from acceptor.core import CheckpointError, UnavailableError

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


def test_a_local_directory_comes_first(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_what_is_neither(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    hub(None)
    inner = tmp_path / "empty" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    with pytest.raises(CheckpointError, match="expected a directory or a hub id, got nothing"):
        find_directory(path)


def test_a_name_that_no_system_takes() -> None:
    with pytest.raises(CheckpointError, match="expected a directory or a hub id, got File name"):
        find_directory("a" * 5000)
