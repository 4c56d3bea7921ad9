"""Finds the trained pair that comes inside the package.

Loads nothing: it answers with directories, which the checkpoint adapter reads like any other.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from ..core.errors import UnavailableError


def bundled_pair() -> tuple[Path, Path]:
    """The directories of the bundled target and draft.

    Raises:
        UnavailableError: the package is not installed as files (imported from a zip, say).
    """
    models = resources.files(__package__) / "models"
    if not isinstance(models, Path):
        raise UnavailableError(f"bundled pair: expected a directory on disk, got {models}")
    return models / "target", models / "draft"
