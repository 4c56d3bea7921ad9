"""Errors can be caught by kind, by family, and by those who know only Python's own."""

import pytest

from acceptor import core
from acceptor.core import AcceptorError, InvalidInputError


@pytest.mark.parametrize(
    "name",
    [
        "InvalidInputError",
        "UnavailableError",
        "OutOfMemoryError",
        "CheckpointError",
        "ConfigError",
    ],
)
def test_every_error_belongs_to_the_family(name: str) -> None:
    error = getattr(core, name)
    assert issubclass(error, AcceptorError)
    assert str(error("field: expected this, got that")) == "field: expected this, got that"


def test_invalid_input_is_a_value_error() -> None:
    assert issubclass(InvalidInputError, ValueError)


def test_the_core_offers_only_what_it_lists() -> None:
    assert sorted(core.__all__) == sorted(set(core.__all__))
    assert all(hasattr(core, name) for name in core.__all__)
