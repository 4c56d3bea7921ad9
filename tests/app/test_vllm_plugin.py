"""The vLLM plug-in; a separate process imports vLLM, with stubs for what it lacks."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

from acceptor.app.vllm_plugin import register
from kit.interpreted import run_python

ROOT = Path(__file__).parents[2]


def test_the_law_in_vllms_own_sampler() -> None:
    if not (ROOT / ".venv" / "vllm").exists():
        pytest.skip("needs the files of vLLM's wheel: make vllm")
    options = ("-q", "-p", "no:cacheprovider", "-W", "default")
    plugins = ("-p", "kit.vllm_process", "-p", "kit.vllm_engine")
    files = map(str, sorted((ROOT / "tests" / "kit").glob("vllm_*checks.py")))
    run_python("-m", "pytest", *options, *plugins, *files)


def test_another_release_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("acceptor.app.vllm_plugin.registration.version", lambda _: "0.34.1")
    register()
    assert caplog.messages == [
        "acceptor: expected vLLM 0.33, got 0.34.1, whose own rejection sampler stays"
    ]
    assert not [name for name in sys.modules if name.startswith("vllm.")]


def test_vllm_finds_the_plug_in() -> None:
    (found,) = metadata.entry_points(group="vllm.general_plugins", name="acceptor")
    assert found.load() is register
