"""Policies as pure functions of one request against their formulas, and synthetic rates."""

import math
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve, fields
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acceptor.core import (
    POLICIES,
    DraftView,
    InvalidInputError,
    Policy,
    Probabilistic,
    RelaxedTopN,
    Rule,
    Stream,
    Synthetic,
    Typical,
)
from acceptor.core.checks import MAX_INT32
from acceptor.core.policies.policy import reports_total_variation

INF = math.inf


def log_rows(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def view(drafts: list[int], target: Tensor, draft: Tensor) -> DraftView:
    return DraftView(torch.tensor(drafts), target, draft, None)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_is_a_value(policy: Any) -> None:
    again = evolve(policy)
    assert (again, hash(again)) == (policy, hash(policy))
    with pytest.raises((FrozenInstanceError, AttributeError)):
        policy.anything = 1


def test_policies_say_what_they_are() -> None:
    assert len({*POLICIES.values()}) == len(POLICIES)
    lossy = {"typical", "relaxed", "fly", "synthetic"}
    assert {p.name for p in POLICIES.values() if not p.lossless} == lossy
    assert [p.name for p in POLICIES.values() if p.rule is Rule.LAST_SUCCESS] == ["block"]
    assert [n for n, p in POLICIES.items() if p.draft_stream is not Stream.DRAFT] == [
        "strict-coupled"
    ]
    reporting = {name for name, p in POLICIES.items() if reports_total_variation(p)}
    assert reporting == lossy - {"synthetic"}
    without = {name for name, p in POLICIES.items() if not p.uses_draft_probs}
    assert without == {"strict", "strict-coupled", "synthetic"}


def test_a_policy_is_lossy_unless_it_says_otherwise() -> None:
    class Other(Policy):
        """A policy of another project."""

    assert not Other.lossless


PARAMETERS = [
    (type(policy), field)
    for policy in POLICIES.values()
    for field in fields(type(policy))  # type: ignore[arg-type]
    if field.metadata
]


@pytest.mark.parametrize(("kind", "parameter"), PARAMETERS)
def test_a_parameter_keeps_to_the_range_that_it_declares(kind: Any, parameter: Any) -> None:
    low, high = parameter.metadata["low"], parameter.metadata["high"]
    # Kernels take int32, and the reference's loops end.
    assert high <= MAX_INT32
    for end in (low, high):
        assert getattr(kind(**{parameter.name: end}), parameter.name) == end
    for value in (low - 1, high + 1, "1", None, math.nan, math.inf):
        with pytest.raises(InvalidInputError, match=f"^{parameter.name}: expected .*, got "):
            kind(**{parameter.name: value})


def test_what_the_draft_never_gives_survives_if_the_target_gives_it() -> None:
    drafted = view([1, 2], log_rows(*[[0.5, 0.5, 0.0]] * 3), log_rows(*[[1.0, 0.0, 0.0]] * 2))
    assert Probabilistic().log_thresholds(drafted).tolist() == [INF, -INF]


def test_a_residual_that_rounds_to_0_is_not_lost() -> None:
    target = torch.tensor([[0.0, -1000.0, -1002.0]] * 2, dtype=torch.float64)
    draft = torch.tensor([[0.0, -1001.0, -1001.0]], dtype=torch.float64)
    residual = Probabilistic().log_residual(view([0], target, draft), 0)
    assert residual.tolist() == [-INF, pytest.approx(-1000 + math.log1p(-math.exp(-1))), -INF]


def test_a_probability_that_rounds_to_0_is_not_impossible() -> None:
    row = torch.tensor([0.0, -1000.0, -1001.0, -INF], dtype=torch.float64)
    drafted = view([0, 1, 2, 3], row.expand(5, -1), log_rows(*[[1.0, 0, 0, 0]] * 4))
    assert Typical(epsilon=0.0).log_thresholds(drafted).tolist() == [0.0, 0.0, 0.0, -INF]
    relaxed = RelaxedTopN(top_n=2, delta=1.0)
    assert relaxed.log_thresholds(drafted).tolist() == [0.0, 0.0, -INF, -INF]


def test_logits_rank_tokens_even_where_probabilities_tie() -> None:
    logits = torch.tensor([0.0, 3.0, 2.0, 1.0, 2.0]) * 1e-30
    law, drafts = log_rows([0.2] * 5), torch.tensor([1, 2, 3, 4, 0])
    drafted = DraftView(drafts, law.expand(6, -1), None, None, target_logits=logits.expand(6, -1))
    best, tied = [0.0] + [-INF] * 4, [0.0, 0.0, -INF, 0.0, -INF]
    for policy, thresholds in ((RelaxedTopN(2, 0.5), tied), (RelaxedTopN(2, 0.0), best)):
        assert policy.log_thresholds(drafted).tolist() == thresholds


lengths = st.integers(1, 12)
rates = st.one_of(st.sampled_from([0.0, 1.0, 1e-9, 1 - 1e-9]), st.floats(0, 1))


@pytest.mark.parametrize(
    ("mean", "percent"),
    [(0.24, [46.93, 18.72, 6.35]), (0.69, [90.84, 70.14, 46.03]), (0.9, [100.0, 92.04, 77.96])],
)
def test_known_answers_for_three_tokens(mean: float, percent: list[float]) -> None:
    policy = Synthetic.from_acceptance_rate(mean, 3)
    assert [100 * rate for rate in policy.rates] == pytest.approx(percent, abs=0.005)


@given(rates, lengths)
def test_the_mean_is_the_rate_and_conditional_ones_decay(mean: float, num_spec_tokens: int) -> None:
    policy = Synthetic.from_acceptance_rate(mean, num_spec_tokens)
    conditional = policy.conditional_rates
    assert len(policy.rates) == num_spec_tokens
    assert sum(policy.rates) / num_spec_tokens == pytest.approx(mean, rel=1e-12, abs=1e-300)
    assert all(0 <= rate <= 1 for rate in (*policy.rates, *conditional))
    assert all(b <= a for a, b in pairwise(policy.rates))
    products = [*accumulate(conditional, mul)]
    assert products == pytest.approx(list(policy.rates), rel=1e-12, abs=1e-300)
    if policy.rates[-1] > 1e-250:
        decays = [b / a for a, b in pairwise(conditional)]
        assert decays == pytest.approx([decays[0]] * len(decays) if decays else [], rel=1e-9)
        assert all(decay >= 0.85 * (1 - 1e-9) for decay in decays)


@given(st.floats(0, 1), lengths)
def test_an_acceptance_length_counts_the_last_token(share: float, num_spec_tokens: int) -> None:
    length = 1 + share * num_spec_tokens
    policy = Synthetic.from_acceptance_length(length, num_spec_tokens)
    assert 1 + sum(policy.rates) == pytest.approx(length, rel=1e-12)


def test_the_ends_are_exact() -> None:
    assert Synthetic.from_acceptance_rate(1, 8).rates == (1.0,) * 8
    assert Synthetic.from_acceptance_rate(0, 8).rates == (0.0,) * 8
    assert Synthetic.from_acceptance_length(9, 8).rates == (1.0,) * 8
    assert Synthetic.from_acceptance_length(1, 8).rates == (0.0,) * 8


def test_there_are_no_rates_without_tokens_and_none_behind_a_rate_of_0() -> None:
    assert Synthetic.from_acceptance_rate(0.5, 0).rates == ()
    assert Synthetic.from_acceptance_length(1, 0).rates == ()
    assert Synthetic(()).conditional_rates == ()
    assert Synthetic((0.5, 0.0, 0.0)).conditional_rates == (0.5, 0.0, 0.0)
    assert repr(Synthetic(np.array([0.5, 0], dtype=np.float32))) == "Synthetic(rates=(0.5, 0.0))"
    of_numpy: tuple[Any, Any] = (np.float32(0.5), np.int64(3))
    assert Synthetic.from_acceptance_rate(*of_numpy) == Synthetic.from_acceptance_rate(0.5, 3)


@pytest.mark.parametrize(
    "given_rates", [(0.5, 0.6), (1.1,), (-0.1,), (math.nan,), ("1",), (True,), 0.5, None]
)
def test_a_wrong_list_is_named(given_rates: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^rates(\[\d\])?: expected .*, got "):
        Synthetic(given_rates)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("acceptance_rate", (-0.01, 1.01, math.nan, math.inf, "1", None)),
        ("acceptance_length", (0.99, 4.01, math.nan, math.inf, "1", True)),
    ],
)
def test_a_wrong_rate_length_or_number_of_tokens_is_named(name: str, values: Any) -> None:
    for value in values:
        with pytest.raises(InvalidInputError, match=rf"^{name}: expected .*, got "):
            getattr(Synthetic, f"from_{name}")(value, 3)
    for value in (-1, 1.5, None, True):
        with pytest.raises(InvalidInputError, match=r"^num_spec_tokens: expected .*, got "):
            getattr(Synthetic, f"from_{name}")(1, value)
