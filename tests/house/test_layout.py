"""The plan of the house and the house itself agree."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOMS = {"adapters", "app", "backends", "core"}
BESIDE_THE_ROOMS = {
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "__init__.py",
    "constraints.txt",
    "docs",
    "py.typed",
    "pyproject.toml",
    "tests",
}


def test_every_package_on_disk_is_listed(repository: Path, pyproject: dict[str, Any]) -> None:
    on_disk = {
        ".".join(("acceptor", *path.parent.relative_to(repository).parts))
        for room in ROOMS
        for path in (repository / room).rglob("__init__.py")
    }
    assert sorted({"acceptor"} | on_disk) == pyproject["tool"]["setuptools"]["packages"]


@pytest.mark.parametrize(
    "room",
    ["app", "app/bench", "app/bench/kernels", "app/engine", "app/tuning", "backends/conformance"],
)
def test_what_a_room_names_at_its_door_is_inside(repository: Path, room: str) -> None:
    folder = repository / room
    text = (folder / "__init__.py").read_text(encoding="utf-8").split('"""')[1]
    inside = {path.stem for path in folder.iterdir()}
    assert {name.split(".")[0] for name in re.findall(r"`([a-z_]+[.\w]*)`", text)} <= inside | {
        "acceptor"
    }


def test_no_module_lies_outside_a_package(repository: Path) -> None:
    folders = {path.parent for room in ROOMS for path in (repository / room).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git which files belong to us")
def test_the_top_level_holds_the_rooms_and_little_else(repository: Path) -> None:
    if not (repository / ".git").exists():
        pytest.skip("not a git checkout")
    names = {name.split("/")[0] for name in our_files(repository)}
    assert {name for name in names if not name.startswith(".")} == ROOMS | BESIDE_THE_ROOMS


def our_files(repository: Path) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return listing.stdout.splitlines()
