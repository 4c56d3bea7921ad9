"""Policies as pure functions: thresholds and residuals of one request, against their formulas."""

import math
from typing import Any

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
    Probabilistic,
    RelaxedTopN,
    Rule,
    Stream,
    Typical,
)
from acceptor.core.policies import reports_total_variation

INF = math.inf


def log_rows(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def view(drafts: list[int], target: Tensor, draft: Tensor) -> DraftView:
    return DraftView(torch.tensor(drafts), target, draft, None)


@st.composite
def laws(draw: st.DrawFn, vocab_size: int = 5) -> Tensor:
    """Log-probabilities with zeros, ties and twins among them."""
    each = st.sampled_from([0.0, 1e-9, 1.0, 2.0, 3.0])
    weights = draw(st.lists(each, min_size=vocab_size, max_size=vocab_size))
    weights[draw(st.integers(0, vocab_size - 1))] += 1.0
    row = torch.tensor(weights, dtype=torch.float64)
    return (row / row.sum()).log()[None]


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


PARAMETERS = [
    (type(policy), field)
    for policy in POLICIES.values()
    for field in fields(type(policy))  # type: ignore[arg-type]
    if field.metadata
]


@pytest.mark.parametrize(("kind", "parameter"), PARAMETERS)
def test_a_parameter_keeps_to_the_range_that_it_declares(kind: Any, parameter: Any) -> None:
    low, high = parameter.metadata["low"], parameter.metadata["high"]
    for end in {low, min(high, 2**40)}:
        assert getattr(kind(**{parameter.name: end}), parameter.name) == end
    for value in (low - 1, high + 1, "1", None, math.nan, math.inf):
        with pytest.raises(InvalidInputError, match=f"^{parameter.name}: expected .*, got "):
            kind(**{parameter.name: value})


@given(laws(), laws())
def test_accepted_and_recovered_mass_add_up_to_the_target(p: Tensor, q: Tensor) -> None:
    """The identity behind probabilistic verification, with the policy's own numbers."""
    policy = Probabilistic()
    vocab = torch.arange(p.shape[1])
    one_draft_each = view(vocab.tolist(), p.expand(len(vocab) + 1, -1), q.expand(len(vocab), -1))
    acceptance = policy.log_thresholds(one_draft_each).exp().clamp(max=1.0)
    survives = q[0].exp() * acceptance
    residual = policy.log_residual(one_draft_each, 0).exp()
    emitted = survives
    if residual.sum() > 0:
        emitted = survives + (1 - survives.sum()) * residual / residual.sum()
    assert torch.allclose(emitted, p[0].exp(), rtol=0, atol=1e-15)


def test_the_residual_keeps_its_precision_where_p_and_q_are_close() -> None:
    exact = 1e-13
    p, q = log_rows([0.5 + exact, 0.5 - exact], [0.5, 0.5]), log_rows([0.5, 0.5])
    residual = Probabilistic().log_residual(view([1], p, q), 0)
    assert residual[0].exp().item() == pytest.approx(exact, rel=1e-2)
    assert residual[1].item() == -INF


def test_a_probability_that_rounds_to_0_is_not_impossible() -> None:
    row = torch.tensor([0.0, -1000.0, -1001.0, -INF], dtype=torch.float64)
    drafted = view([0, 1, 2, 3], row.expand(5, -1), log_rows(*[[1.0, 0, 0, 0]] * 4))
    assert Typical(epsilon=0.0).log_thresholds(drafted).tolist() == [0.0, 0.0, 0.0, -INF]
    relaxed = RelaxedTopN(top_n=2, delta=1.0)
    assert relaxed.log_thresholds(drafted).tolist() == [0.0, 0.0, -INF, -INF]
