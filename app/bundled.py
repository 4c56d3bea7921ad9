"""Finds the trained models that come inside the package.

Loads nothing: it answers with directories, which the checkpoint adapter reads like any other.
"""

from importlib import resources
from pathlib import Path

from ..core import UnavailableError


def bundled_pair() -> tuple[Path, Path]:
    """The directories of the bundled target and draft.

    Raises:
        UnavailableError: the package is not installed as files (imported from a zip, say).
    """
    return _models() / "target", _models() / "draft"


def bundled_head() -> Path:
    """The directory of an EAGLE-3 head for the bundled target."""
    return _models() / "eagle3"


def _models() -> Path:
    models = resources.files(__package__) / "models"
    if not isinstance(models, Path):
        raise UnavailableError(f"bundled models: expected a directory on disk, got {models}")
    return models
