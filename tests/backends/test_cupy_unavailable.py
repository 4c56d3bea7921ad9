"""The CuPy backend's errors when it cannot compile or run, and its log while it compiles."""

import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from acceptor.app.engine.out_of_memory import is_out_of_memory
from acceptor.backends.cupy_backend import cache
from acceptor.backends.cupy_backend.cache import CompiledKernels
from acceptor.backends.cupy_backend.compiler import compile_kernel, compiler_version
from acceptor.backends.cupy_backend.device import Device
from acceptor.backends.cupy_backend.variant import Variant
from acceptor.core.errors import UnavailableError

VARIANT = Variant(0)
INSTALL = r"install with: pip install 'acceptor\[cupy\]'"


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels that are compiled, in their order."""
    asked: list[str] = []

    def compile_it(kernel: str, *_: object) -> bytes:
        asked.append(kernel)
        return b"machine code of " + kernel.encode()

    monkeypatch.setattr(cache, "compile_kernel", compile_it)
    monkeypatch.setattr(cache, "compiler_version", lambda: "13.0")
    return asked


def test_missing_nvrtc_tells_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", None)
    with pytest.raises(UnavailableError, match=INSTALL):
        compiler_version()


def test_missing_cupy_tells_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.api.driver", None)
    with pytest.raises(UnavailableError, match=INSTALL):
        Device.open(0, CompiledKernels(tmp_path))


@pytest.mark.parametrize("error", [RuntimeError, AssertionError])
def test_a_missing_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[Exception]
) -> None:
    pytest.importorskip("cupy_backends")

    def properties(index: int) -> None:
        raise error(f"no driver for {index}")

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    with pytest.raises(UnavailableError, match=r"driver for CUDA 13 or newer, then: pip install"):
        Device.open(3, CompiledKernels(tmp_path))


def test_an_old_device_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("cupy_backends")
    old = SimpleNamespace(major=7, minor=5)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: old)
    expected = "backend cupy: expected compute capability 8.0 or newer, got 7.5 on cuda:1"
    with pytest.raises(UnavailableError, match=f"^{expected}$"):
        Device.open(1, CompiledKernels(tmp_path))


@pytest.mark.usefixtures("compiles")
def test_a_driver_that_cannot_load_a_kernel_is_a_typed_error(tmp_path: Path) -> None:
    pytest.importorskip("cupy_backends")
    device = Device(0, 90, 132, CompiledKernels(tmp_path))
    refuses = "the CUDA driver refuses kernel outputs for sm_90"
    with pytest.raises(UnavailableError, match=refuses) as e:
        device.kernel("outputs", VARIANT)
    (kept,) = tmp_path.iterdir()
    assert f"delete {kept}" in str(e.value)


@pytest.mark.usefixtures("compiles")
def test_a_full_device_is_no_old_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = pytest.importorskip("cupy_backends.cuda.api.driver")

    def load(_: bytes) -> int:
        raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: out of memory")

    monkeypatch.setattr(driver, "moduleLoadData", load)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    device = Device(0, 90, 132, CompiledKernels(tmp_path))
    with pytest.raises(RuntimeError, match="CUDA_ERROR_OUT_OF_MEMORY") as caught:
        device.kernel("outputs", VARIANT)
    assert is_out_of_memory(caught.value)


def test_a_kernel_that_nvrtc_refuses_is_a_typed_error() -> None:
    pytest.importorskip("cupy_backends")
    with pytest.raises(UnavailableError, match="NVRTC refuses"):
        compile_kernel("logprobs", Variant("NO_SUCH_TYPE"), 90)  # type: ignore[arg-type]


@pytest.mark.usefixtures("compiles")
def test_a_cold_compile_is_told_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kernels = CompiledKernels(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert kernels.load("outputs", VARIANT, 90) == b"machine code of outputs"
        assert kernels.load("outputs", VARIANT, 90) == b"machine code of outputs"
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "compiling outputs for sm_90: -DVARIANT_LOGITS=0 -DVARIANT_CHANGE=0"
    assert said[1].startswith("compiled outputs for sm_90 in ")
    assert len(said) == 2


def test_a_file_that_is_not_whole_is_compiled_again(compiles: list[str], tmp_path: Path) -> None:
    kernels = CompiledKernels(tmp_path)
    code = kernels.load("outputs", VARIANT, 90)
    path = kernels.path("outputs", VARIANT, 90)
    whole = path.read_bytes()
    assert whole.startswith(code)
    damaged = (b"", whole[:5], whole[:-1], whole[:-32], whole[:-40], b"X" + whole[1:], whole + b"X")
    for turn, kept in enumerate(damaged, start=2):
        path.write_bytes(kept)
        assert kernels.load("outputs", VARIANT, 90) == code
        assert len(compiles) == turn
        assert path.read_bytes() == whole
    assert kernels.load("outputs", VARIANT, 90) == code
    assert len(compiles) == len(damaged) + 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_cache_that_cannot_be_written_is_a_warning(
    compiles: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    kernels = CompiledKernels(tmp_path / "file" / "cupy")  # no directory can be there
    with caplog.at_level(logging.WARNING):
        for name in ("outputs", "accept", "outputs"):
            assert kernels.load(name, VARIANT, 90) == b"machine code of " + name.encode()
    assert compiles == ["outputs", "accept", "outputs"]
    said = [record.getMessage() for record in caplog.records]
    (warning,) = (text for text in said if "cannot be kept" in text)
    assert str(kernels.directory) in warning
    assert "XDG_CACHE_HOME" in warning


@pytest.mark.usefixtures("compiles")
def test_what_cannot_be_written_whole_is_not_left_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert CompiledKernels(tmp_path).load("outputs", VARIANT, 90) == b"machine code of outputs"
    assert not list(tmp_path.iterdir())


def test_a_user_without_a_home_has_a_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert cache.user_cache_directory().is_relative_to("/nonexistent")


def test_code_is_found_again_only_for_the_same_question(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[object, ...]] = []

    def compile_it(*question: object) -> bytes:
        asked.append(question)
        return str(question).encode()

    monkeypatch.setattr(cache, "compile_kernel", compile_it)
    kernels = CompiledKernels(tmp_path)
    for version, source in (("13.0", "a"), ("13.1", "a"), ("13.0", "b")):
        monkeypatch.setattr(cache, "compiler_version", lambda version=version: version)
        monkeypatch.setattr(cache, "sources", lambda source=source: {"outputs.cu": source})
        for name in ("outputs", "accept"):
            for variant in (VARIANT, Variant(1)):
                for architecture in (80, 90):
                    kernels.load(name, variant, architecture)
                    kernels.load(name, variant, architecture)
    assert len(asked) == len(list(tmp_path.iterdir())) == 3 * 8
