"""Which commit of the project runs, for the records of what was measured.

This module refuses to take another project's commit for this one's: it asks git only where the
project's own folder is a checkout.
"""

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

VARIABLE = "ACCEPTOR_COMMIT"
"""Says it where there is no checkout, as in a copy of its files."""

UNKNOWN = "unknown"
ROOT = Path(__file__).parents[1]


def commit(root: Path = ROOT) -> str:
    """What `VARIABLE` says, else the checkout's commit, `-dirty` where files differ from it."""
    return os.environ.get(VARIABLE) or _asked(root)


def at_commit(about: Mapping[str, str]) -> str:
    """Of a record's versions: ", commit X", or nothing in records that do not know it."""
    known = about.get("commit", UNKNOWN)
    return "" if known == UNKNOWN else f", commit {known}"


@cache
def _asked(root: Path) -> str:
    if not (root / ".git").exists():
        return UNKNOWN
    described = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    try:
        asked = subprocess.run(  # noqa: S603, the command is written above
            ("git", "-C", str(root), *described),  # noqa: S607, git is where users have it
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return asked.stdout.strip() or UNKNOWN
