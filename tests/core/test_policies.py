"""Policies as pure functions: thresholds and residuals of one request, against their formulas."""

import math
from typing import Any

import pytest
import torch
from attrs import evolve, fields
from attrs.exceptions import FrozenInstanceError
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
from acceptor.core.checks import MAX_INT32
from acceptor.core.policies import reports_total_variation

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
