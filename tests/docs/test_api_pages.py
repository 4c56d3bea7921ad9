"""The pages of the API describe every public name, and every name that another page uses."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
PUBLIC = ("acceptor.core", "acceptor.backends", "acceptor.backends.operators")
_DESCRIBED = re.compile(
    r"^\.\. (?:py:)?(currentmodule|autoclass|autofunction|autoexception|data):: ([\w.]+)",
    re.MULTILINE,
)
_IMPORTED = re.compile(r"^from (acceptor[\w.]*) import (\([^)]*\)|[^\n(]+)", re.MULTILINE)
_DOTTED = re.compile(r"`(acceptor(?:\.\w+)+)")


def entries() -> Iterator[str]:
    """The full names that have an entry."""
    for page in PAGES:
        module = "acceptor"
        for directive, name in _DESCRIBED.findall(page.read_text(encoding="utf-8")):
            if directive == "currentmodule":
                module = name
            else:
                yield name if name.startswith("acceptor.") else f"{module}.{name}"


ENTRIES = frozenset(entries())


def resolve(name: str) -> object:
    """The module, or the attribute of one, that has this name."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(resolve(module), attribute)


def told(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for module, names in _IMPORTED.findall(text):
        for name in names.strip("()").replace("\n", " ").split(","):
            if name.strip():
                yield f"{module}.{name.strip()}"
    yield from _DOTTED.findall(text)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_described(module: str) -> None:
    public = {f"{module}.{name}" for name in import_module(module).__all__}
    assert public - ENTRIES == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_a_page_is_described(page: Path) -> None:
    known = {id(resolve(name)) for name in ENTRIES}
    objects = {name: resolve(name) for name in set(told(page))}
    missing = [
        name
        for name, one in objects.items()
        if not isinstance(one, ModuleType) and id(one) not in known
    ]
    assert not missing
