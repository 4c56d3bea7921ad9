import sys
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from acceptor.adapters import find_directory
from acceptor.core import CheckpointError, UnavailableError


def hub_that(answer: Any) -> ModuleType:
    """A huggingface_hub whose download returns the answer, or raises it."""
    hub = ModuleType("huggingface_hub")

    def snapshot_download(hub_id: str, *, allow_patterns: list[str]) -> str:
        assert hub_id == "owner/name-1.5"
        assert not any(pattern.endswith((".bin", ".py", "*")) for pattern in allow_patterns)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    hub.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    return hub


def test_a_local_directory_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    Path("owner/name").mkdir(parents=True)
    assert find_directory("owner/name") == Path("owner/name")
    assert find_directory(tmp_path) == tmp_path


def test_a_hub_id_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub_that(tmp_path))
    assert find_directory("owner/name-1.5") == tmp_path


def test_the_hubs_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "huggingface_hub", hub_that(OSError("Got: 404\n\n  not found"))
    )
    expected = r"^owner/name-1\.5: expected a model on the Hugging Face hub, got 404 not found$"
    with pytest.raises(CheckpointError, match=expected):
        find_directory("owner/name-1.5")


def test_a_hub_id_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UnavailableError, match=r'pip install "acceptor\[hub\]"'):
        find_directory("owner/name-1.5")


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_drafts_pickle_is_fetched_where_there_is_no_safetensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    hub = ModuleType("huggingface_hub")

    def snapshot_download(_: str, *, allow_patterns: list[str]) -> str:
        for name in ("config.json", weights):
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (tmp_path / name).touch()
        return str(tmp_path)

    hub.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    is_safe = weights.endswith(".safetensors")
    find_directory("owner/name-1.5")
    assert (tmp_path / weights).exists() == is_safe
    assert find_directory("owner/name-1.5", of_draft=True) == tmp_path
    assert (tmp_path / weights).exists()


@pytest.mark.parametrize("path", ["nowhere", "/no/where", "a/b/c"])
def test_what_is_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    inner = tmp_path / "empty" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    with pytest.raises(CheckpointError, match="expected a directory or a hub id, got nothing"):
        find_directory(path)


def test_a_name_that_no_system_takes() -> None:
    with pytest.raises(CheckpointError, match="expected a directory or a hub id, got File name"):
        find_directory("a" * 5000)
