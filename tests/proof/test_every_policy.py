"""No policy goes without a proof and a row in the docs, and the page shows what was recorded."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from acceptor.core import DraftView, Probabilistic, policies
from kit.proof import record, tables, verdict
from kit.proof.cases import LOSSLESS, LOSSY, POLICIES, Pair
from kit.proof.exact import EXACT, law_error

DOCS = Path(__file__).parents[2] / "docs"
CLASSES = [
    value
    for name in policies.__all__
    if hasattr(value := getattr(policies, name), "log_thresholds") and name != "Policy"
]


MAIN = DOCS / "data" / "proof.json"
OTHERS = sorted((DOCS / "data").glob("proof-*.json"))


@pytest.mark.parametrize("policy", CLASSES, ids=lambda policy: policy.__name__)
def test_every_policy_is_proven_and_documented(policy: type) -> None:
    assert policy in {type(proven) for proven in POLICIES}
    assert policy in {type(pair.policy) for pair in (*LOSSLESS, *LOSSY)}
    assert f"| `{policy.__name__}(" in (DOCS / "policies.md").read_text(encoding="utf-8")


class Timid(Probabilistic):
    """Accepts half as often as it could, and is lossless because its residual knows that."""

    def log_thresholds(self, view: DraftView) -> Tensor:
        return super().log_thresholds(view).clamp(max=0.0) - math.log(2)

    def log_residual(self, view: DraftView, row: int) -> Tensor:
        assert view.draft_log_probs is not None
        p, q = view.target_log_probs[row].exp(), view.draft_log_probs[row].exp()
        return (p - torch.minimum(p, q) / 2).log()


class Forgetful(Timid):
    def log_residual(self, view: DraftView, row: int) -> Tensor:
        return Probabilistic().log_residual(view, row)


@pytest.mark.parametrize("drafter", ["draft model", "n-gram", "mapped"])
def test_a_policy_needs_nothing_but_its_class_to_be_proven(drafter: str) -> None:
    right, wrong = Pair(Timid(), drafter), Pair(Forgetful(), drafter)
    assert law_error(right.setup, 2).joint <= EXACT
    assert law_error(wrong.setup, 2).joint > 1e-3


def test_the_page_shows_the_record() -> None:
    fragments = tables.fragments(record.read(MAIN), [record.read(path) for path in OTHERS])
    for name, text in fragments.items():
        assert (DOCS / "data" / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("path", [MAIN, *OTHERS], ids=lambda path: path.stem)
def test_every_recorded_claim_holds(path: Path) -> None:
    assert all(claim.holds for claim in verdict.claims(record.read(path)))


def test_a_wrong_record_is_judged_wrong() -> None:
    main = record.read(MAIN)
    main["exact"][0]["joint"] = 1e-3
    main["edges"][0]["wrong"] = 1
    assert sum(not claim.holds for claim in verdict.claims(main)) == 2
