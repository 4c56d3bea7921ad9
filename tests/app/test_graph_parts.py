"""A step may be cut behind every draft token, and is not where nothing is captured."""

from contextlib import suppress

from acceptor.app.graph_parts import cut_here, cutting


def test_cuts_are_made_only_while_somebody_cuts() -> None:
    cuts: list[int] = []
    cut_here()
    with cutting(lambda: cuts.append(1)):
        cut_here()
        with suppress(ZeroDivisionError), cutting(lambda: cuts.append(2)):
            cut_here()
            raise ZeroDivisionError
        cut_here()
    cut_here()
    assert cuts == [1, 2, 1]
