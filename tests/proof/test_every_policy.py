"""No policy goes without a proof and a row in the docs, and the page shows what was recorded."""

import math
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from acceptor.core import DraftView, Probabilistic, policies
from kit.only_strict import OnlyStrict
from kit.proof import record, tables
from kit.proof.__main__ import main
from kit.proof.cases import LOSSLESS, LOSSY, POLICIES, Pair
from kit.proof.exact import EXACT, law_error

DOCS = Path(__file__).parents[2] / "docs"
CLASSES = [
    value
    for name in policies.__all__
    if hasattr(value := getattr(policies, name), "log_thresholds") and name != "Policy"
]


RECORD = record.read(DOCS / "data" / "proof.json")


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
    assert (DOCS / "data" / "proof.md").read_text(encoding="utf-8") == tables.markdown(RECORD)


@pytest.mark.parametrize("found", [RECORD, *RECORD["elsewhere"]], ids=lambda one: one["backend"])
def test_every_recorded_claim_holds(found: record.Record) -> None:
    assert all(claim.holds for claim in record.claims(found))


def test_a_record_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    path, cpu, cuda = tmp_path / "proof.json", torch.device("cpu"), torch.device("cuda")
    where = {"machine": {"device": "cuda, a GPU"}}
    other = record.Sampled("other", OnlyStrict(), cuda, record.ON_A_GPU)
    for value in (1, 2):
        record.keep(path, {"backend": "other", **where, "large": [value]}, other)
    assert record.known(path, "reference", cpu) == {}
    own = record.Sampled("reference", OnlyStrict(), cpu, record.ON_A_CPU)
    record.keep(path, {**record.about(own), "exact": []}, own)
    assert record.known(path, "other", cuda)["large"] == [2]
    assert "exact" in record.known(path, "reference", cpu)
    assert len(record.read(path)["elsewhere"]) == 1


def test_a_wrong_record_is_judged_wrong() -> None:
    main = deepcopy(RECORD)
    main["exact"][0]["joint"] = 1e-3
    main["edges"][0]["wrong"] = 1
    assert sum(not claim.holds for claim in record.claims(main)) == 2


def test_a_short_proof_is_written_with_its_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "proof.json"
    chosen = [word for part in ("edges", "large") for word in ("--part", part)]
    backend = ["--backend", "acceptor.backends.reference:ReferenceSampler", "--draws", "200"]
    assert main([*backend, *chosen, "--json", str(path)]) == 0
    found = record.read(path)["elsewhere"][0]
    assert len(found["large"]) == 9
    assert found["edges"][0]["wrong"] == 0
    assert "holds: 151,936 nearly equal tokens" in capsys.readouterr().out
