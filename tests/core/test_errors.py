"""Errors can be caught by kind, by family, and by those who know only Python's own."""

from acceptor import core


def test_the_core_offers_only_what_it_lists_and_its_errors_are_one_family() -> None:
    assert sorted(core.__all__) == sorted(set(core.__all__))
    offered = [getattr(core, name) for name in core.__all__ if name.endswith("Error")]
    assert len(offered) > 5
    assert all(issubclass(error, core.AcceptorError) for error in offered)
    assert issubclass(core.InvalidInputError, ValueError)
