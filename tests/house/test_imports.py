"""Which room may import whom, read from the source and seen at run time."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any


def test_importing_a_room_brings_nothing_else() -> None:
    """What files may import is a contract of import-linter's, in pyproject.toml."""
    rooms = ("torch", "acceptor.core", "acceptor.backends")
    shown = "".join(f"import {room}; print(*sys.modules)\n" for room in rooms)
    loaded = python(f"import sys\n{shown}").stdout.splitlines()
    before, core, backends = (set(line.split()) for line in loaded)
    heavy = ("cupy", "safetensors", "tokenizers", "transformers", "triton")
    outer = ("acceptor.adapters", "acceptor.app")
    assert {name for name in backends - before if name.startswith(heavy + outer)} == set()
    assert {name for name in core if name.startswith("acceptor.backends")} == set()


def test_a_sampler_needs_no_package_of_the_application(
    repository: Path, pyproject: dict[str, Any]
) -> None:
    program = without(pyproject, readme_code(repository) + "print(output.token_ids.shape)")
    assert python(program, "-W", "ignore").stdout == "torch.Size([1, 4])\n"


def test_a_command_without_its_packages_says_how_to_get_them(pyproject: dict[str, Any]) -> None:
    entry = pyproject["project"]["scripts"]["acceptor"].split(":")
    finished = python(without(pyproject, f"from {entry[0]} import {entry[1]} as run; run()"))
    assert finished.returncode == 1
    assert finished.stderr == "acceptor: needs click; install with: pip install 'acceptor[app]'\n"


def test_no_file_imports_itself_through_others(repository: Path) -> None:
    """Imports within functions and for type checkers count."""
    files = {
        ("acceptor", *path.relative_to(repository).with_suffix("").parts): path
        for room in ("core", "backends", "adapters", "app")
        for path in (repository / room).rglob("*.py")
    }
    graph = {name: set(imported_files(name, path, set(files))) for name, path in files.items()}
    # Raises `CycleError`, which names them.
    assert len(list(TopologicalSorter(graph).static_order())) == len(files)


def imported_files(
    name: tuple[str, ...], path: Path, files: set[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        package = name[: len(name) - node.level] if node.level else ()
        module = (*package, *(node.module.split(".") if node.module else ()))
        for alias in node.names:
            candidates = ((*module, alias.name), module, (*module, "__init__"))
            yield from [found for found in candidates if found in files and found != name][:1]


def without(pyproject: dict[str, Any], program: str) -> str:
    """The program where no package of the application can be imported."""
    requirements = pyproject["project"]["optional-dependencies"]["app"]
    names = [requirement.partition(">")[0] for requirement in requirements]
    return f"import sys; sys.modules.update(dict.fromkeys({names}))\n{program}"


def readme_code(repository: Path) -> str:
    return (repository / "README.md").read_text(encoding="utf-8").split("```")[3].partition("\n")[2]


def python(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True)
