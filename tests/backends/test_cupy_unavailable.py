"""What the CuPy backend says when it cannot compile or run, and what it says while it compiles."""

import logging
import sys
from pathlib import Path

import pytest
import torch

from acceptor.backends.cupy_backend import cache
from acceptor.backends.cupy_backend.cache import CompiledKernels
from acceptor.backends.cupy_backend.compiler import Compiled, compile_kernel, compiler_version
from acceptor.backends.cupy_backend.device import Device
from acceptor.core.errors import UnavailableError

INSTALL = r"install with: pip install 'acceptor\[cupy\]'"


def test_missing_nvrtc_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", None)
    with pytest.raises(UnavailableError, match=INSTALL):
        compiler_version()


def test_missing_cupy_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


def test_a_driver_that_cannot_load_a_kernel_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("cupy_backends")
    monkeypatch.setattr(cache, "compile_kernel", lambda *_: Compiled(b"no machine code", ""))
    monkeypatch.setattr(cache, "compiler_version", lambda: "13.0")
    device = Device(0, 90, 132, 228 * 1024, CompiledKernels(tmp_path))
    with pytest.raises(UnavailableError, match="the CUDA driver refuses kernel wide for sm_90"):
        device.kernel("wide", ())


def test_a_kernel_that_nvrtc_refuses_is_a_typed_error() -> None:
    pytest.importorskip("cupy_backends")
    with pytest.raises(UnavailableError, match="NVRTC refuses"):
        compile_kernel("logprobs", ("-DVARIANT_POLICY=NO_SUCH_POLICY",), 90)


def test_a_cold_compile_says_so_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache, "compile_kernel", lambda *_: Compiled(b"machine code", ""))
    monkeypatch.setattr(cache, "compiler_version", lambda: "13.0")
    kernels = CompiledKernels(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert kernels.load("wide", ("-DA=1",), 90) == b"machine code"
        assert kernels.load("wide", ("-DA=1",), 90) == b"machine code"
    assert [r.getMessage().split(" in ")[0] for r in caplog.records] == ["compiled wide for sm_90"]


def test_code_is_found_again_only_for_the_same_question(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[object, ...]] = []

    def compile_it(*question: object) -> Compiled:
        asked.append(question)
        return Compiled(str(question).encode(), "")

    monkeypatch.setattr(cache, "compile_kernel", compile_it)
    kernels = CompiledKernels(tmp_path)
    for version, source in (("13.0", "a"), ("13.1", "a"), ("13.0", "b")):
        monkeypatch.setattr(cache, "compiler_version", lambda version=version: version)
        monkeypatch.setattr(cache, "sources", lambda source=source: {"wide.cu": source})
        for name in ("wide", "narrow"):
            for macros in (("-DA=1",), ("-DA=2",)):
                for architecture in (80, 90):
                    kernels.load(name, macros, architecture)
                    kernels.load(name, macros, architecture)
    assert len(asked) == len(list(tmp_path.iterdir())) == 3 * 8
