"""Pages stay small, their code runs, their links lead somewhere, and one shows every record."""

import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

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
    shown = set(re.findall(r"include\} data/([\w-]+)", TEXT))
    assert {path.stem for path in DATA} == shown
    assert len(DATA) <= 20
    drawn = set(re.findall(r"\]\(figures/([\w-]+\.svg)\)", TEXT))
    assert {path.name for path in (DOCS / "figures").iterdir()} == drawn


def test_the_pages_and_their_tables_can_be_read_in_an_afternoon() -> None:
    files = [*DOCS.glob("*.md"), *(DOCS / "data").glob("*.md")]
    tokens = [token for file in files for token in file.read_text(encoding="utf-8").split()]
    words = [token for token in tokens if any(character.isalnum() for character in token)]
    assert len(words) <= 18_000
