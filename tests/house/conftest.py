"""Where the house stands, and what its plan says."""

import tomllib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def pyproject(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
