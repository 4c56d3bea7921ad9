"""Finds the directories of the trained models that come with the application.

A checkout has them beside this file. An installation gets them from `acceptor-models`, so that a
sampler alone stays small to install.
"""

from importlib.util import find_spec
from pathlib import Path

from ..core import UnavailableError

DISTRIBUTED = "acceptor_models"


def bundled_pair() -> tuple[Path, Path]:
    """The directories of the bundled target and draft.

    Raises:
        UnavailableError: they are not installed.
    """
    return _models() / "target", _models() / "draft"


def bundled_head() -> Path:
    """The directory of an EAGLE-3 head for the bundled target."""
    return _models() / "eagle3"


def _models() -> Path:
    found = find_spec(DISTRIBUTED)
    installed = () if found is None else found.submodule_search_locations or ()
    for models in (Path(__file__).parent / "models", *map(Path, installed)):
        if (models / "target").is_dir():
            return models
    said = "expected acceptor-models, got none; install with: pip install 'acceptor[app]'"
    raise UnavailableError(f"bundled models: {said}")
