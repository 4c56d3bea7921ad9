"""What a user installs: the rooms under one name, their data, and nothing beside them."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import acceptor
from acceptor.app.bundled import DISTRIBUTED, bundled_head, bundled_pair

Listing = set[str]


SMALL = 1_000_000
"""Bytes of what an engine installs for its samplers; PyTorch has hundreds of times as many."""


@pytest.fixture(scope="module")
def wheels(
    repository: Path, pyproject: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    # From a copy: setuptools leaves a build/ behind, and packs a stale one into the next wheel.
    copy = tmp_path_factory.mktemp("source")
    unwanted = shutil.ignore_patterns(
        ".*", "__pycache__", "build", "dist", "docs", "tests", "*.egg-info"
    )
    shutil.copytree(repository, copy, ignore=unwanted, dirs_exist_ok=True)
    models, target = copy / "app" / "models", tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, target, copy, models], check=True
    )
    version = pyproject["project"]["version"]
    return {
        name: target / f"{name}-{version}-py3-none-any.whl" for name in ("acceptor", DISTRIBUTED)
    }


@pytest.fixture(scope="module")
def wheel(wheels: dict[str, Path]) -> Listing:
    return set(ZipFile(wheels["acceptor"]).namelist())


def test_the_package_knows_its_version(pyproject: dict[str, Any]) -> None:
    assert acceptor.__version__ == pyproject["project"]["version"]


def test_a_wheel_installs_one_package(wheel: Listing) -> None:
    top = {name.split("/")[0] for name in wheel}
    assert {name for name in top if not name.endswith(".dist-info")} == {"acceptor"}


def test_a_wheel_holds_all_that_is_in_the_rooms(repository: Path, wheel: Listing) -> None:
    files = {
        path.relative_to(repository).as_posix()
        for room in ("adapters", "app", "backends", "core")
        for path in (repository / room).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
        if repository / "app" / "models" not in path.parents
    }
    assert {f"acceptor/{name}" for name in files | {"py.typed"}} - wheel == set()


def test_the_models_come_with_the_application_only(
    wheels: dict[str, Path], pyproject: dict[str, Any]
) -> None:
    assert wheels["acceptor"].stat().st_size < SMALL
    version = pyproject["project"]["version"]
    assert f"acceptor-models=={version}" in pyproject["project"]["optional-dependencies"]["app"]
    held = set(ZipFile(wheels[DISTRIBUTED]).namelist())
    files = [*bundled_pair()[0].iterdir(), *bundled_pair()[1].iterdir(), *bundled_head().iterdir()]
    assert {f"{DISTRIBUTED}/{path.parent.name}/{path.name}" for path in files} < held


def test_a_wheel_tells_its_licence(wheel: Listing) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)
