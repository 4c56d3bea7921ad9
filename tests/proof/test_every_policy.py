"""No policy goes without a proof and a row in the docs, and the page shows what was recorded."""

from pathlib import Path

import pytest

from acceptor.core import policies
from kit.laws.cases import POLICIES
from lab.proof import record
from lab.proof.__main__ import main

DOCS = Path(__file__).parents[2] / "docs"
CLASSES = list(dict.fromkeys(type(policy) for policy in policies.POLICIES.values()))
ROWS = record.read(DOCS / "data" / "proof.json")


@pytest.mark.parametrize("policy", CLASSES, ids=lambda policy: policy.__name__)
def test_every_policy_is_proven_and_documented(policy: type) -> None:
    assert policy in {type(proven) for proven in POLICIES}
    assert f"| `{policy.__name__}(" in (DOCS / "policies.md").read_text(encoding="utf-8")


def test_the_page_shows_the_record_and_every_claim_holds() -> None:
    assert (DOCS / "data" / "proof.md").read_text(encoding="utf-8") == record.markdown(ROWS)
    assert {row["part"] for row in ROWS} == {*record.PROMISES}
    assert all(map(record.holds, ROWS))


@pytest.mark.parametrize("part", record.PROMISES)
def test_a_wrong_row_is_judged_wrong(part: str) -> None:
    wrong = dict.fromkeys(("p_chi_square", "p_g"), 1e-9)
    spoiled: dict[str, record.Row] = {
        "exact": {"joint": 1e-3},
        "losses": {"reported": 0.9},
        "samples": {"tests": {"joint": wrong}},
        "large": wrong,
        "mutants": {"value": 0.0},
    }
    row = next(row for row in ROWS if row["part"] == part)
    assert not record.holds(row | spoiled[part])


def test_a_short_proof_takes_the_place_of_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "proof.json"
    about = {"part": "samples", "backend": "kit.only_strict:OnlyStrict", "policy": "block"}
    elsewhere = about | {"device": "cuda, a GPU"}
    for where in (elsewhere, about | {"device": "cpu, another"}):
        record.keep(path, [where])
    command = ["--backend", "kit.only_strict:OnlyStrict", "--part", "samples"]
    assert main([*command, "--runs", "3", "--json", str(path)]) == 0
    rows = record.read(path)
    assert elsewhere in rows
    # Policies that the backend lacks are left out.
    here = {row["policy"] for row in rows if row != elsewhere}
    assert here == {"strict", "strict-coupled"}
    assert "holds: samples, 6 rows of" in capsys.readouterr().out
