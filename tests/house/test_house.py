"""The plan of the house, the house itself and its wheel agree."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import acceptor
from acceptor.app.bundled import DISTRIBUTED, bundled_head, bundled_pair

REPOSITORY = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
ROOMS = {"adapters", "app", "backends", "core"}
BESIDE_THE_ROOMS = {"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "__init__.py", "py.typed"}
BESIDE_THE_ROOMS |= {"constraints.txt", "docs", "pyproject.toml", "tests"}


def test_every_package_on_disk_is_listed() -> None:
    on_disk = {
        ".".join(("acceptor", *path.parent.relative_to(REPOSITORY).parts))
        for room in ROOMS
        for path in (REPOSITORY / room).rglob("__init__.py")
    }
    assert sorted({"acceptor"} | on_disk) == PYPROJECT["tool"]["setuptools"]["packages"]


@pytest.mark.parametrize(
    "room",
    ["app", "app/bench", "app/bench/kernels", "app/engine", "app/tuning", "backends/conformance"],
)
def test_what_a_room_names_at_its_door_is_inside(room: str) -> None:
    folder = REPOSITORY / room
    text = (folder / "__init__.py").read_text(encoding="utf-8").split('"""')[1]
    inside = {path.stem for path in folder.iterdir()}
    assert {name.split(".")[0] for name in re.findall(r"`([a-z_]+[.\w]*)`", text)} <= inside | {
        "acceptor"
    }


def test_no_module_lies_outside_a_package() -> None:
    folders = {path.parent for room in ROOMS for path in (REPOSITORY / room).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git which files belong to us")
def test_the_top_level_holds_the_rooms_and_little_else() -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    names = {name.split("/")[0] for name in our_files()}
    assert {name for name in names if not name.startswith(".")} == ROOMS | BESIDE_THE_ROOMS


def our_files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return listing.stdout.splitlines()


def test_importing_a_room_brings_nothing_else() -> None:
    """Contracts of import-linter in pyproject.toml say what files may import."""
    rooms = ("torch", "acceptor.core", "acceptor.backends")
    shown = "".join(f"import {room}; print(*sys.modules)\n" for room in rooms)
    loaded = python(f"import sys\n{shown}").stdout.splitlines()
    before, core, backends = (set(line.split()) for line in loaded)
    heavy = ("cupy", "safetensors", "tokenizers", "transformers", "triton")
    outer = ("acceptor.adapters", "acceptor.app")
    assert {name for name in backends - before if name.startswith(heavy + outer)} == set()
    assert {name for name in core if name.startswith("acceptor.backends")} == set()


def test_a_sampler_needs_no_package_of_the_application() -> None:
    program = without(readme_code() + "print(output.token_ids.shape)")
    assert python(program, "-W", "ignore").stdout == "torch.Size([1, 4])\n"


def test_a_command_without_its_packages_says_how_to_get_them() -> None:
    entry = PYPROJECT["project"]["scripts"]["acceptor"].split(":")
    finished = python(without(f"from {entry[0]} import {entry[1]} as run; run()"))
    assert finished.returncode == 1
    assert finished.stderr == "acceptor: needs click; install with: pip install 'acceptor[app]'\n"


def test_no_file_imports_itself_through_others() -> None:
    """Imports within functions and for type checkers count."""
    files = {
        ("acceptor", *path.relative_to(REPOSITORY).with_suffix("").parts): path
        for room in ROOMS
        for path in (REPOSITORY / room).rglob("*.py")
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


def without(program: str) -> str:
    """The program where no package of the application can be imported."""
    requirements = PYPROJECT["project"]["optional-dependencies"]["app"]
    names = [requirement.partition(">")[0] for requirement in requirements]
    return f"import sys; sys.modules.update(dict.fromkeys({names}))\n{program}"


def readme_code() -> str:
    return (REPOSITORY / "README.md").read_text(encoding="utf-8").split("```")[3].partition("\n")[2]


def python(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True)


Listing = set[str]
SMALL = 1_000_000
"""Bytes of what an engine installs for its samplers; PyTorch has hundreds of times as many."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    # From a copy: setuptools leaves a build/ behind, and packs a stale one into the next wheel.
    copy = tmp_path_factory.mktemp("source")
    unwanted = shutil.ignore_patterns(
        ".*", "__pycache__", "build", "dist", "docs", "tests", "*.egg-info"
    )
    shutil.copytree(REPOSITORY, copy, ignore=unwanted, dirs_exist_ok=True)
    models, target = copy / "app" / "models", tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, target, copy, models], check=True
    )
    version = PYPROJECT["project"]["version"]
    return {
        name: target / f"{name}-{version}-py3-none-any.whl" for name in ("acceptor", DISTRIBUTED)
    }


@pytest.fixture(scope="module")
def wheel(wheels: dict[str, Path]) -> Listing:
    return set(ZipFile(wheels["acceptor"]).namelist())


def test_the_package_knows_its_version() -> None:
    assert acceptor.__version__ == PYPROJECT["project"]["version"]


def test_a_wheel_installs_one_package(wheel: Listing) -> None:
    top = {name.split("/")[0] for name in wheel}
    assert {name for name in top if not name.endswith(".dist-info")} == {"acceptor"}


def test_a_wheel_holds_all_that_is_in_the_rooms(wheel: Listing) -> None:
    files = {
        path.relative_to(REPOSITORY).as_posix()
        for room in ROOMS
        for path in (REPOSITORY / room).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
        if REPOSITORY / "app" / "models" not in path.parents
    }
    assert {f"acceptor/{name}" for name in files | {"py.typed"}} - wheel == set()


def test_the_models_come_with_the_application_only(wheels: dict[str, Path]) -> None:
    assert wheels["acceptor"].stat().st_size < SMALL
    version = PYPROJECT["project"]["version"]
    assert f"acceptor-models=={version}" in PYPROJECT["project"]["optional-dependencies"]["app"]
    held = set(ZipFile(wheels[DISTRIBUTED]).namelist())
    files = [*bundled_pair()[0].iterdir(), *bundled_pair()[1].iterdir(), *bundled_head().iterdir()]
    assert {f"{DISTRIBUTED}/{path.parent.name}/{path.name}" for path in files} < held


def test_a_wheel_tells_its_licence(wheel: Listing) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)
