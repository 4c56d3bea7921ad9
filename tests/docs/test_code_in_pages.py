"""The Python in the README and in every page of the documentation runs and says what it claims."""

from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path) -> None:
    sybil = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()])
    for example in sybil.parse(page).examples():
        example.evaluate()
