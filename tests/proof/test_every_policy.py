"""No policy goes without a proof and a row in the docs, and the page shows what was recorded."""

from pathlib import Path

import pytest

from acceptor.core import policies
from kit.proof import record, tables, verdict
from kit.proof.cases import POLICIES

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
    assert f"| `{policy.__name__}(" in (DOCS / "policies.md").read_text(encoding="utf-8")


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
