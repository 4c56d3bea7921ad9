"""Models of ten lines, and what decodes with them: see kit.toy_pair."""

from collections.abc import Callable

import pytest

from kit.toy_pair import Pair


@pytest.fixture(scope="session")
def make_pair() -> Callable[..., Pair]:
    return Pair.make


@pytest.fixture(scope="session")
def pair() -> Pair:
    return Pair.make()
