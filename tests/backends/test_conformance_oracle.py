"""The oracle is independent, agrees with the reference, and finds planted bugs."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acceptor.backends.conformance import Findings, Generator, oracle, run_case
from acceptor.backends.conformance.calls import Watched
from acceptor.backends.conformance.campaign import Campaign
from acceptor.backends.conformance.corners import (
    POSITION,
    SEED_OF_HIGHEST_UNIFORM,
    SEED_OF_LOWEST_UNIFORM,
    WORDS,
    corners,
)
from acceptor.backends.conformance.oracle.law import Adjustments, adjust
from acceptor.backends.conformance.oracle.race import exponentials, uniforms
from acceptor.backends.conformance.run import Check, run_all
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import POLICIES, Level, Stream
from acceptor.core.randomness import exponential, random_words
from kit.bugs import Bug
from kit.bugs_in_batches import ALL_BUGS

VALUES = {"batch", "errors", "output", "policies", "token_counts"}
VALUES |= {"sampling_params", "sampling_tensors"}


def test_the_oracle_shares_only_values_with_the_core() -> None:
    for path in Path(oracle.__file__).parent.glob("*.py"):
        for shared in imported_from_outside(path):
            _, room, module, *_ = shared.__module__.split(".")
            assert (room, module in VALUES) == ("core", True), f"{path.name}: {shared}"


def imported_from_outside(path: Path) -> Iterator[Any]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            module = import_module("." * node.level + str(node.module), oracle.__name__)
            yield from (getattr(module, alias.name) for alias in node.names)


def words_of(seed: int, position: int, index: int, *rest: Any) -> Tensor:
    """The core's words of some candidates in a race, of a stream at a level: [num_candidates]."""
    seeds = torch.tensor([seed - 2**64 * (seed >= 2**63)])
    indices = torch.tensor([0 if rest[0] is Stream.TARGET else index])
    return random_words(seeds, torch.tensor([position]), indices, *rest)[0]


@given(
    seed=st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([2**63, 2**64 - 1])),
    position=st.integers(0, 2**32) | st.sampled_from([-1, 2**31, 2**32 - 1, 2**32, 2**63 - 1]),
    draft_index=st.integers(1, 2**32 - 1),
    race=st.tuples(st.sampled_from(Stream), st.sampled_from(Level)),
    first=st.integers(0, 2**30),
    count=st.integers(1, 11),
)
def test_each_candidate_has_the_word_of_the_contract(
    seed: int, position: int, draft_index: int, race: tuple[Stream, Level], first: int, count: int
) -> None:
    candidates = torch.arange(4 * first, 4 * first + count)[None]
    expected = exponential(words_of(seed, position, draft_index, *race, candidates))
    got = exponentials(seed, race[0], position, draft_index, race[1], 4 * first, count)
    np.testing.assert_allclose(got, expected, rtol=1e-14)


@pytest.mark.parametrize(("rare", "expected"), [(0, 0), (1, 2**32 - 1)])
def test_rare_words_are_what_they_are_said_to_be(rare: int, expected: int) -> None:
    for race, words in WORDS.items():
        seed, candidate = words[rare]
        assert words_of(seed, POSITION, 1, *race, torch.arange(4)[None])[candidate] == expected


def test_rare_uniforms_are_the_lowest_and_the_highest() -> None:
    assert uniforms(SEED_OF_LOWEST_UNIFORM, POSITION, 1)[0] == 2.0**-24
    assert uniforms(SEED_OF_HIGHEST_UNIFORM, POSITION, 1)[0] == 1 - 2.0**-24
    # Positions count modulo 2**32, in later rows, too.
    assert uniforms(1, 2**32 - 1, 3).tolist() == uniforms(1, -1, 3).tolist()


def test_adjusted_logits_are_float32_numbers_rounded_at_each_step() -> None:
    raw, one = np.array([0.1, -0.3, 7.0, 1.0]).astype(np.float32).astype(np.float64), np.float32(1)
    seen, counts = np.array([True, False, False, True]), np.array([2, 3, 0, 0])
    wanted = Adjustments({1: 0.2, 9: 5.0}, repetition=1.1, presence=0.7, frequency=0.3)
    x, (r, f, s, b) = raw.astype(np.float32), map(np.float32, (1.1, 0.3, 0.7, 0.2))
    expected = [x[0] / r - f * (one + one) - s, (x[1] + b) * r - f * (one + one + one) - s]
    expected += [x[2], x[3] / r]
    assert adjust(raw, wanted, seen, counts).tolist() == [float(value) for value in expected]


REFERENCE = ReferenceSampler()
ONLY_NUMBERS_SHOW = {"no variation reported", "draft logits scaled in place"}
ONLY_NUMBERS_SHOW |= {"processed logprobs are raw", "raw logprobs of masked logits"}
"""These are the oracle's to judge, for each backend."""


@pytest.mark.parametrize("policy", [*POLICIES])
def test_the_reference_agrees_with_the_oracle(policy: str) -> None:
    campaign = Campaign(("reference",), generator=Generator((policy,), 2500))
    (found,) = campaign.found(0, 12)
    assert found.num_batches == 12
    assert found.differences == ()


@pytest.mark.parametrize("policy", [*POLICIES])
def test_the_reference_agrees_where_models_and_drafts_are_broken(policy: str) -> None:
    bad = frozenset(("bad target rows", "bad draft rows", "bad ids"))
    for case in Generator((policy,), 40).cases(1, 20):
        broken = evolve(case, features=case.features | bad)
        assert run_case(broken, REFERENCE, torch.device("cpu")).differences == ()


def test_the_reference_agrees_in_every_corner_and_in_batches_of_forms() -> None:
    forms = Generator(largest_vocabulary=2500, num_forms=48)
    campaign = Campaign(("reference",), generator=forms, chunk=1)
    found = sum((found for _, (found,) in campaign.run(0, 20)), Findings())
    assert found.num_batches > 20 + 80
    assert found.differences == ()


def by(bugs: list[Bug]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bug", bugs)


@by([bug for bug in ALL_BUGS if bug.shown_by == "batches"])
def test_random_batches_show_a_planted_bug(bug: Bug) -> None:
    shown = (
        case for case in bug.batches(300) if run_all(Check(case), [Watched(bug)])[0].unexplained
    )
    for case in shown:
        right, wrong, between = run_all(Check(case), [Watched(REFERENCE), Watched(bug)])
        assert not right.unexplained
        if (wrong.unexplained and between.unexplained) or bug.name in ONLY_NUMBERS_SHOW:
            return
    pytest.fail("not shown")


@by([bug for bug in ALL_BUGS if bug.shown_by not in ("batches", "proof")])
def test_corners_show_what_one_random_word_in_millions_does(bug: Bug) -> None:
    here = [check for name, check in corners() if bug.shown_by in name]
    found = [run_all(check, [Watched(REFERENCE), Watched(bug)]) for check in here]
    seen = [any(some.unexplained for some in of) for of in zip(*found, strict=True)]
    assert seen == [False, True, True]


def test_names_are_of_one_bug_each() -> None:
    assert len({bug.name for bug in ALL_BUGS}) == len(ALL_BUGS)
