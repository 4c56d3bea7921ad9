"""Three ways to say a synthetic acceptance rate, against the published answers."""

import math
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptor.core import InvalidInputError, Synthetic

lengths = st.integers(1, 12)
rates = st.one_of(st.sampled_from([0.0, 1.0, 1e-9, 1 - 1e-9]), st.floats(0, 1))


@pytest.mark.parametrize(
    ("mean", "percent"),
    [
        (0.24, [46.93, 18.72, 6.35]),
        (0.69, [90.84, 70.14, 46.03]),
        (0.9, [100.0, 92.04, 77.96]),
        (1.0, [100.0, 100.0, 100.0]),
        (0.0, [0.0, 0.0, 0.0]),
    ],
)
def test_known_answers_for_three_tokens(mean: float, percent: list[float]) -> None:
    policy = Synthetic.from_acceptance_rate(mean, 3)
    assert [100 * rate for rate in policy.rates] == pytest.approx(percent, abs=0.005)


@given(rates, lengths)
def test_the_mean_is_the_rate_and_conditional_rates_decay(
    mean: float, num_spec_tokens: int
) -> None:
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


@pytest.mark.parametrize("given_rates", [(0.5, 0.6), (1.1,), (-0.1,), (math.nan,), ("1",), (True,)])
def test_a_wrong_list_is_named(given_rates: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^rates\[\d\]: expected .*, got "):
        Synthetic(given_rates)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("acceptance_rate", value) for value in (-0.01, 1.01, math.nan, math.inf, "1", None)],
        *[("acceptance_length", value) for value in (0.99, 4.01, math.nan, math.inf, "1", True)],
    ],
)
def test_a_wrong_rate_or_length_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{name}: expected .*, got "):
        getattr(Synthetic, f"from_{name}")(value, 3)


@pytest.mark.parametrize("value", [-1, 1.5, None, True])
def test_a_wrong_number_of_tokens_is_named(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^num_spec_tokens: expected .*, got "):
        Synthetic.from_acceptance_rate(0.5, value)
    with pytest.raises(InvalidInputError, match=r"^num_spec_tokens: expected .*, got "):
        Synthetic.from_acceptance_length(1, value)
