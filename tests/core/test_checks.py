"""Many integers are checked as each of them would be."""

import math

import pytest

from acceptor.core import InvalidInputError
from acceptor.core.checks import check_integer, check_integers

LISTS: tuple[list[object], ...] = (
    [],
    [0],
    [3, 0, 7],
    [3, 8, -1],
    [-1, 2],
    [1, True],
    [1, 2.0, 9],
    ["1"],
    [None, 9],
    [10**400],
)


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
@pytest.mark.parametrize("values", LISTS)
def test_the_first_that_does_not_fit_is_told_of(values: list[object], high: float) -> None:
    alone = complaint(values, high, together=False)
    assert complaint(values, high, together=True) == alone
    assert bool(alone) == any(
        not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high
        for value in values
    )
