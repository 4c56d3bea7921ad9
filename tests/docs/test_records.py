"""The pages' tables agree with the records, and the records reach the goals."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from acceptor.app.bench.command import bench
from acceptor.app.bench.files import read_record
from acceptor.app.bench.kernels.table import markdown
from acceptor.app.bench.kernels.workload import Run
from acceptor.app.bench.markdown import as_markdown as bench_as_markdown
from acceptor.app.bench.plots import draw_all
from acceptor.app.bench.public_pairs import PAIRS
from acceptor.app.bench.results import read_results as read_bench_results
from acceptor.app.tuning import results as tuning_results
from acceptor.app.tuning.command import tune
from acceptor.backends.conformance.findings import Record
from acceptor.core import policies
from kit.bench_sums import assert_figures_add_up
from lab.gpu.record import table
from lab.heads import tables as head_tables
from lab.pair import training as pair_training
from lab.proof import record as proof
from lab.proof.cases import POLICIES
from lab.speed.engine import as_markdown, share_of_limit

_LINES = re.compile(r'<path d="([^"]*)"|<text[^>]*>([^<]*)')
DATA = Path(__file__).parents[2] / "docs" / "data"


def read(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return record


ENGINE = read("engine.json")
HEADS = head_tables.Heads.read(DATA / "heads.json")
PROOF = proof.read(DATA / "proof.json")
ROWS = {(row["num_reqs"], row["num_spec_tokens"]): row for row in ENGINE["rows"]}


def test_the_tables_are_what_the_records_say() -> None:
    expected = {
        "gpu.md": table(read("gpu.json")),
        "kernels.md": markdown(read_record(DATA / "kernels.json", Run, "bench kernels")),
        "engine.md": as_markdown(ENGINE),
    }
    for name, text in expected.items():
        assert (DATA / name).read_text(encoding="utf-8") == text, name


@pytest.mark.parametrize(
    ("concurrency", "num_spec_tokens", "goal"), [(1, 3, 0.75), (1, 0, 0.8), (16, 3, 0.64)]
)
def test_a_step_reaches_its_share(concurrency: int, num_spec_tokens: int, goal: float) -> None:
    assert share_of_limit(ENGINE, ROWS[concurrency, num_spec_tokens]) >= goal


def test_the_page_on_heads_says_what_the_records_say() -> None:
    page = (DATA.parent / "draft-heads.md").read_text(encoding="utf-8")
    assert all(table in page for table in HEADS.tables())
    for name, pair in PAIRS.items():
        line, *_ = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert all(f"{rate:g}" in line for rate in pair.rates)


def test_a_step_with_a_head_costs_less_than_one_with_a_draft_model() -> None:
    found = head_tables.steps(HEADS.served)
    assert found.keys() == {1, 16}
    for of in found.values():
        assert of["plain"] < of[head_tables.EAGLE3] < of[head_tables.ONE_B]


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_recorded_as_others_have_served_them(name: str) -> None:
    runs, rates = HEADS.served[name].runs, PAIRS[name].rates
    policies = ["strict", "probabilistic", "block", *(f"synthetic {rate:g}" for rate in rates)]
    assert [(run.setting.max_concurrency, run.setting.policy) for run in runs] == [
        (at_once, policy) for at_once in (1, 16) for policy in policies
    ]
    for run in runs:
        assert_figures_add_up(run.figures)
        if run.setting.policy.startswith("synthetic"):
            rate = float(run.setting.policy.split()[1])
            assert run.figures.acceptance.acceptance_rate == pytest.approx(rate, abs=0.06)


@pytest.mark.parametrize("name", [*PAIRS, head_tables.ONE_B])
def test_nothing_was_compiled_while_a_pair_was_served(name: str) -> None:
    """One compilation of a second would double the mean step."""
    for run in HEADS.served[name].runs:
        assert run.figures.itl.mean <= 1.2 * run.figures.itl.median


@pytest.mark.parametrize("name", PAIRS)
def test_the_figures_of_a_pair_fit_each_other(name: str) -> None:
    figures = {
        (run.setting.policy, run.setting.max_concurrency): run.figures
        for run in HEADS.served[name].runs
    }
    lengths = {key: one.acceptance.acceptance_length for key, one in figures.items()}
    for (policy, num_reqs), one in figures.items():
        per_token = one.itl.mean / lengths[policy, num_reqs]
        assert one.tpot.mean == pytest.approx(per_token, rel=0.15)
        assert one.output_throughput >= figures[policy, 1].output_throughput
        # Random weights make both nearly the same; the rest is chance.
        assert lengths["block", num_reqs] >= 0.95 * lengths["probabilistic", num_reqs]


def test_speculation_pays_off_and_verification_takes_little() -> None:
    speculative, plain = (ROWS[1, drafts]["tokens_per_second"] for drafts in (3, 0))
    assert speculative >= 1.6 * plain
    assert speculative >= 10 * ENGINE["hugging_face"]["assisted"]
    for row in ENGINE["rows"]:
        assert row["verification_ms"] <= 0.03 * row["step_ms"]


def test_the_soak_lost_and_confused_nothing_and_kept_its_memory() -> None:
    soak = read("soak.json")
    assert (soak["unfinished"], soak["wrong"]) == (0, 0)
    assert sum(soak["ends"].values()) == soak["num_requests"] == 100_000
    assert soak["masked"].keys() == soak["ends"].keys()
    assert sum(soak["masked"].values()) > 30_000
    first, *_, last = soak["resident_kilobytes"]
    assert last <= 1.05 * first


@pytest.mark.parametrize(
    "path",
    [*DATA.glob("equivalence*.json"), *DATA.glob("conformance*.json")],
    ids=lambda path: path.stem,
)
def test_the_tables_of_backends_are_what_the_records_say(path: Path) -> None:
    record = Record.read(path)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == record.page
    assert record.is_conformant


def test_every_flag_of_the_page_exists() -> None:
    page = (DATA.parent / "benchmark.md").read_text(encoding="utf-8")
    named = set(re.findall(r"--[a-z][a-z-]+", page))
    commands = (bench, tune, pair_training.main)
    known = {name for command in commands for option in command.params for name in option.opts}
    assert named
    assert named <= known


def test_the_tables_of_tuning_are_what_the_record_says() -> None:
    results = tuning_results.read_results(DATA / "tune.json")
    assert (DATA / "tune.md").read_text(encoding="utf-8") == tuning_results.as_markdown(results)
    for policy, concurrency in product(results.policies, results.concurrencies):
        model = results.policies[policy]
        for one in results.predictions:
            if (one.policy, one.concurrency) == (policy, concurrency):
                again = model.tokens_per_second(one.num_spec_tokens, concurrency)
                assert one.tokens_per_second == pytest.approx(again)
    assert any(check.not_measured for check in results.checks)


def test_the_figures_are_what_the_records_draw(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib, which draws")
    draw_all(read_bench_results(DATA / "benchmark-bundled.json"), tmp_path, cpu_time=True)
    tuning_results.curve(tuning_results.read_results(DATA / "tune.json")).draw(
        tmp_path / "tune.svg"
    )
    for drawn in tmp_path.iterdir():
        kept = (DATA.parent / "figures" / drawn.name).read_text(encoding="utf-8")
        # Another release of matplotlib names itself.
        assert _LINES.findall(drawn.read_text(encoding="utf-8")) == _LINES.findall(kept)


def test_the_table_of_the_pair_is_the_record_s_and_coupled_drafts_survive_as_they_must() -> None:
    """One draw with shared noise keeps at least (1 - d) / (1 + d), d the total variation.

    Daliri et al. 2024, arXiv 2408.07978; by convexity the mean of d gives a bound, too. Drafts with
    noise of other positions stay far below.
    """
    results = read_bench_results(DATA / "benchmark-bundled.json")
    text = (DATA / "benchmark-bundled.md").read_text(encoding="utf-8")
    assert text == bench_as_markdown(results, cpu_time=True)
    first = {
        (run.setting.policy, run.setting.num_spec_tokens): run.figures.acceptance
        for run in results.runs
        if run.setting.num_spec_tokens
    }
    for num_spec_tokens in {k for _, k in first}:
        overlap = first["probabilistic", num_spec_tokens].acceptance_rate_per_pos[0]
        coupled = first["strict-coupled", num_spec_tokens].acceptance_rate_per_pos[0]
        assert coupled > overlap / (2 - overlap)


@pytest.mark.parametrize("policy", dict.fromkeys(map(type, policies.POLICIES.values())))
def test_every_policy_is_proven_and_documented(policy: type) -> None:
    assert policy in {type(proven) for proven in POLICIES}
    assert f"| `{policy.__name__}(" in (DATA.parent / "policies.md").read_text(encoding="utf-8")


def test_the_page_on_the_proof_shows_the_record_and_every_claim_holds() -> None:
    assert (DATA / "proof.md").read_text(encoding="utf-8") == proof.markdown(PROOF)
    assert {row["part"] for row in PROOF} == {*proof.PROMISES}
    assert all(map(proof.holds, PROOF))


@pytest.mark.parametrize("part", proof.PROMISES)
def test_a_wrong_row_of_the_proof_is_judged_wrong(part: str) -> None:
    wrong = dict.fromkeys(("p_chi_square", "p_g"), 1e-9)
    spoiled: dict[str, proof.Row] = {
        "exact": {"joint": 1e-3},
        "losses": {"reported": 0.9},
        "samples": {"tests": {"joint": wrong}},
        "large": wrong,
        "mutants": {"value": 0.0},
        "schemas": {"invalid": 1},
    }
    row = next(row for row in PROOF if row["part"] == part)
    assert not proof.holds(row | spoiled[part])
