"""Machine code is compiled once and kept, and used all the same where it cannot be."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from acceptor.adapters.cuda_programs.program import CudaProgram
from acceptor.adapters.one_launch.launch import PROGRAM
from acceptor.core import UnavailableError


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Architectures in the order in which they were compiled for."""
    asked: list[str] = []

    def compile_it(_self: CudaProgram, _macros: tuple[str, ...], architecture: str) -> object:
        asked.append(architecture)
        return b"code of " + architecture.encode(), ""

    nvrtc = SimpleNamespace(getVersion=lambda: (13, 0))
    monkeypatch.setattr(CudaProgram, "_nvrtc", lambda _self: nvrtc)
    monkeypatch.setattr(CudaProgram, "compile", compile_it)
    return asked


def test_code_is_compiled_once_for_each_architecture_and_macros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = PROGRAM.machine_code((), "sm_90a")
    assert PROGRAM.machine_code((), "sm_90a") == first
    assert first.read_bytes() == b"code of sm_90a"
    assert compiled == ["sm_90a"]
    others = {PROGRAM.machine_code((), "sm_100a"), PROGRAM.machine_code(("-DA=1",), "sm_90a")}
    assert compiled == ["sm_90a", "sm_100a", "sm_90a"]
    assert set((tmp_path / "acceptor" / "one_launch").iterdir()) == {first, *others}


@pytest.mark.usefixtures("compiled")
def test_code_that_cannot_be_kept_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    assert PROGRAM.machine_code((), "sm_90a").read_bytes() == b"code of sm_90a"
    assert "one launch: every process compiles it anew" in caplog.text


def test_a_program_that_is_wrong_says_which() -> None:
    pytest.importorskip("cupy_backends")
    with pytest.raises(UnavailableError, match=r"one launch: NVRTC refuses forward\.cu"):
        PROGRAM.compile((), "sm_90a")
