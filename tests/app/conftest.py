"""Decoders of models of ten lines, see kit.toy_pair; and the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptor.app.bench import public_pairs
from acceptor.app.cli import main
from kit.shapes import TINY, write_tiny_pairs
from kit.toy_pair import Pair


@pytest.fixture(scope="session")
def pair() -> Pair:
    return Pair.make()


@pytest.fixture
def acceptor(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int | str, str, str]]:
    """Run the command line in this process: arguments -> (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int | str, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return exit_.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def complaint(acceptor: Callable[..., tuple[int | str, str, str]]) -> Callable[..., str]:
    """Run the command line, expect it to fail, and return what it complains about."""

    def run(*arguments: object) -> str:
        code, out, err = acceptor(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("acceptor: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        return err.removeprefix("acceptor: ").rstrip("\n")

    return run


@pytest.fixture
def shape(tmp_path: Path) -> Callable[..., Path]:
    """Write the config.json of a small model: its name and what is different -> the file."""

    def write(name: str, **changes: int) -> Path:
        path = tmp_path / f"{name}.json"
        fields = TINY | {"architectures": ["LlamaForCausalLM"]} | changes
        path.write_text(json.dumps(fields), encoding="utf-8")
        return path

    return write


@pytest.fixture
def tiny(shape: Callable[..., Path]) -> tuple[object, ...]:
    """Flags for a small pair with random weights."""
    small = shape("small", num_hidden_layers=1)
    return "--random-weights", shape("large"), "--draft-random-weights", small


@pytest.fixture
def tiny_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `--pair` find tiny models instead of real ones."""
    write_tiny_pairs(tmp_path)
    monkeypatch.setattr(public_pairs, "_SHAPES", tmp_path)
