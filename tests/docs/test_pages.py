"""Pages stay small, their code runs, their links work, and they show all names and settings."""

import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from attrs import fields
from sybil import Example, Sybil
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser, SkipParser

from acceptor.app.cli import generate
from acceptor.app.config import Config, DecodingConfig, DrafterConfig, EngineConfig, ModelsConfig
from acceptor.app.policies import settings_class
from acceptor.app.structure import structured
from acceptor.core import POLICIES, SamplingParams

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])
DATA = sorted((DOCS / "data").iterdir())
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)|include\} (\S+)")


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    named = {link or file for link, file in _LINK.findall(page.read_text(encoding="utf-8"))}
    assert not [name for name in named if not (page.parent / name).exists()]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_says_what_it_claims(page: Path) -> None:
    for example in Sybil(parsers=[PythonCodeBlockParser(), SkipParser()]).parse(page).examples():
        example.evaluate()


def test_a_page_shows_every_record_and_figure() -> None:
    assert {path.stem for path in DATA} == set(re.findall(r"include\} data/([\w-]+)", TEXT))
    assert len(DATA) <= 20
    drawn = set(re.findall(r"\]\(figures/([\w-]+\.svg)\)", TEXT))
    assert {path.name for path in (DOCS / "figures").iterdir()} == drawn


def test_the_pages_and_their_tables_can_be_read_in_an_afternoon() -> None:
    words = [
        word for file in DOCS.rglob("*.md") for word in file.read_text(encoding="utf-8").split()
    ]
    assert len(words) <= 18_000


PUBLIC = ("acceptor.core", "acceptor.backends", "acceptor.backends.operators")
_DESCRIBED = re.compile(
    r"^\.\. (?:py:)?(currentmodule|entries|autoclass|data)::((?:\n? +\w[\w.]*)+)", re.MULTILINE
)
_IMPORTED = re.compile(r"^from (acceptor[\w.]*) import (\([^)]*\)|[^\n(]+)", re.MULTILINE)
_DOTTED = re.compile(r"`(acceptor(?:\.\w+)+)")


def entries() -> Iterator[str]:
    """The full names that have an entry."""
    for page in PAGES:
        module = "acceptor"
        for directive, names in _DESCRIBED.findall(page.read_text(encoding="utf-8")):
            if directive == "currentmodule":
                module = names.strip()
            else:
                for name in names.split():
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
    assert {f"{module}.{name}" for name in import_module(module).__all__} - ENTRIES == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_a_page_is_described(page: Path) -> None:
    known = {id(resolve(name)) for name in ENTRIES}
    objects = {name: resolve(name) for name in set(told(page))}
    described = {n for n, one in objects.items() if isinstance(one, ModuleType) or id(one) in known}
    assert objects.keys() - described == set()


CONFIGURATION = DOCS / "configuration.md"
SETTINGS = CONFIGURATION.read_text(encoding="utf-8")
TABLES = [Config, DecodingConfig, DrafterConfig, EngineConfig, ModelsConfig, SamplingParams]
TABLES += [settings_class(name) for name in POLICIES]


def test_examples_of_settings_are_valid() -> None:
    examples = list(Sybil(parsers=[CodeBlockParser("toml", load)]).parse(CONFIGURATION).examples())
    assert examples
    for example in examples:
        example.evaluate()


@pytest.mark.parametrize(
    "name", sorted({field.name for table in TABLES for field in fields(table)})
)
def test_a_setting_is_described(name: str) -> None:
    assert f"`{name}`" in SETTINGS or f"`[{name}]`" in SETTINGS


@pytest.mark.parametrize("flag", sorted(name for p in generate.params for name in p.opts))
def test_a_flag_is_described(flag: str) -> None:
    assert f"`{flag}`" in SETTINGS


def load(example: Example) -> None:
    structured(tomllib.loads(example.parsed), Config, CONFIGURATION.name)
