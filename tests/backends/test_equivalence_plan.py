"""Which chunks an equivalence run has depends on what they give, and on nothing else."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import find, settings
from hypothesis import strategies as st

from acceptor.backends.conformance import Tally
from acceptor.backends.conformance.run import each_case
from kit.equivalence.campaign import Campaign
from kit.equivalence.forms import forms
from kit.equivalence.plan import TURN, Chunk, Plan

FIRST_TURN = [Chunk(form, 5 * (1 + number % 3), number) for number, form in enumerate(forms(2))]
REFUSED = {3, 8}
SHORT = 5


def all_is_compared(chunk: Chunk) -> int:
    return chunk.size


def some_are_refused(chunk: Chunk) -> int:
    """Two forms are, and a third one at times."""
    if chunk.number % TURN in REFUSED:
        return 0
    return 2 if chunk.number % TURN == SHORT else chunk.size


def everything_is_refused(chunk: Chunk) -> int:
    return 0 * chunk.size


def numbers_run(
    plan: Plan, gives: Callable[[Chunk], int], speeds: np.random.Generator, num_workers: int
) -> list[int]:
    """The chunks of a run whose workers end in any order."""
    pending: list[Chunk] = []
    numbers: list[int] = []
    while True:
        pending += plan.ready(num_workers - len(pending))
        if not pending:
            return numbers
        chunk = pending.pop(int(speeds.integers(len(pending))))
        numbers.append(chunk.number)
        plan.note(chunk, Tally(num_batches=gives(chunk)))


@pytest.mark.parametrize("gives", [all_is_compared, some_are_refused])
def test_the_same_chunks_run_whoever_ends_first(gives: Callable[[Chunk], int]) -> None:
    runs = [
        numbers_run(Plan(FIRST_TURN, 1000), gives, np.random.default_rng(number), 1 + number)
        for number in range(40)
    ]
    assert len({frozenset(numbers) for numbers in runs}) == 1
    assert all(len({*numbers}) == len(numbers) for numbers in runs)
    assert len({*map(tuple, runs)}) > 30


@pytest.mark.parametrize("gives", [all_is_compared, some_are_refused])
@pytest.mark.parametrize("wanted", [1, 161, 500, 1000])
def test_no_chunk_is_one_too_many_and_no_form_is_left_out(
    gives: Callable[[Chunk], int], wanted: int
) -> None:
    plan = Plan(FIRST_TURN, wanted)
    numbers = numbers_run(plan, gives, np.random.default_rng(0), 4)
    assert {chunk.number for chunk in FIRST_TURN} <= {*numbers}
    assert sum(plan.compared.values()) >= wanted
    last = max(numbers, key=lambda number: (number // TURN, number))
    if last >= TURN:
        assert sum(plan.compared.values()) - plan.compared[last] < wanted


@pytest.mark.parametrize("gives", [all_is_compared, some_are_refused])
@pytest.mark.parametrize("cut", [0, 1, 30, 100])
def test_a_run_that_goes_on_has_enough_and_no_chunk_twice(
    gives: Callable[[Chunk], int], cut: int
) -> None:
    whole = Plan(FIRST_TURN, 1000)
    order = numbers_run(whole, gives, np.random.default_rng(cut), 4)
    earlier = order[:cut]
    plan = Plan(FIRST_TURN, 1000)
    before = sum(whole.compared[number] for number in earlier)
    plan.resume(earlier, before)
    further = numbers_run(plan, gives, np.random.default_rng(2), 4)
    assert not {*earlier} & {*further}
    assert before + sum(plan.compared[number] for number in further) >= 1000
    if gives is all_is_compared:
        assert {*earlier, *further} == {*order}


def test_a_form_that_was_refused_is_not_asked_again() -> None:
    numbers = numbers_run(Plan(FIRST_TURN, 1000), some_are_refused, np.random.default_rng(1), 7)
    assert {number for number in numbers if number % TURN in REFUSED} == REFUSED


def test_a_run_ends_where_a_backend_refuses_everything() -> None:
    numbers = numbers_run(
        Plan(FIRST_TURN, 1000), everything_is_refused, np.random.default_rng(1), 7
    )
    assert sorted(numbers) == [chunk.number for chunk in FIRST_TURN]


def test_what_others_lack_is_made_up_for() -> None:
    less, more = Plan(FIRST_TURN, 400), Plan(FIRST_TURN, 380)
    first = more.ready(10)
    more.num_batches += 20
    expected = numbers_run(less, all_is_compared, np.random.default_rng(1), 3)
    for chunk in first:
        more.note(chunk, Tally(num_batches=chunk.size))
    rest = numbers_run(more, all_is_compared, np.random.default_rng(2), 3)
    assert {*rest} | {chunk.number for chunk in first} == {*expected}


def test_batches_do_not_depend_on_modules_that_were_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = batches()
    literals = [7**place for place in range(3, 17)]
    (tmp_path / "some_literals.py").write_text(f"SOME = {literals}\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_module("some_literals")
    # Larger numbers would depend on them.
    around = st.integers(literals[-1] - 10**9, literals[-1] + 10**9)
    assert find(around, literals[-1].__eq__, settings=settings(database=None)) == literals[-1]
    assert batches() == before


def batches() -> list[str]:
    """A few of several forms."""
    seen: list[str] = []
    for number, form in enumerate(forms(1)):
        each_case(lambda case: seen.append(case.to_json()), number, 20, form.cases)
    return seen


def test_more_forms_than_a_turn_has_numbers_for_are_refused() -> None:
    with pytest.raises(ValueError, match="forms: expected at most 996, got"):
        next(Campaign(("reference",), "cpu", 10, 60, 1).run())
