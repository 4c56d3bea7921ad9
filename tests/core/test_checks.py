"""Many integers are checked like single ones; errors form one family, and are Python's own, too."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptor import core
from acceptor.core import InvalidInputError
from acceptor.core.checks import check_integer, check_integers

VALUES = st.integers(-2, 9) | st.sampled_from([True, 2.0, "1", None, 10**400])


def complaint(values: list[object], high: float, *, together: bool) -> str:
    try:
        if together:
            check_integers("ids", values, 0, high)
        else:
            for value in values:
                check_integer("ids", value, 0, high)
    except InvalidInputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("high", [7, math.inf])
@given(values=st.lists(VALUES, max_size=4))
def test_the_first_that_does_not_fit_is_told_of(values: list[object], high: float) -> None:
    alone = complaint(values, high, together=False)
    assert complaint(values, high, together=True) == alone
    assert bool(alone) == any(
        not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high
        for value in values
    )


def test_the_core_offers_only_what_it_lists_and_its_errors_are_one_family() -> None:
    assert sorted(core.__all__) == sorted(set(core.__all__))
    offered = [getattr(core, name) for name in core.__all__ if name.endswith("Error")]
    assert len(offered) > 5
    assert all(issubclass(error, core.AcceptorError) for error in offered)
    assert issubclass(core.InvalidInputError, ValueError)
