"""The page on benchmarks names only flags that exist, and its tables say what the records say."""

import re
from itertools import product
from pathlib import Path

import pytest

from acceptor.app.bench.command import bench
from acceptor.app.bench.files import read_record
from acceptor.app.tuning.command import tune
from acceptor.app.tuning.results import read_results
from acceptor.app.tuning.tables import as_markdown
from lab import benchmark_page, pair_training

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = DOCS / "data"


def test_every_flag_of_the_page_exists() -> None:
    page = (DOCS / "benchmark.md").read_text(encoding="utf-8")
    named = set(re.findall(r"--[a-z][a-z-]+", page))
    commands = (bench, tune, benchmark_page.main, pair_training.main)
    known = {name for command in commands for option in command.params for name in option.opts}
    assert named
    assert named <= known


def test_the_tables_of_tuning_are_what_the_record_says() -> None:
    results = read_results(RECORDS / "tune.json")
    assert (RECORDS / "tune.md").read_text(encoding="utf-8") == as_markdown(results)
    for policy, concurrency in product(results.policies, results.concurrencies):
        model = results.policies[policy]
        for one in results.predictions:
            if (one.policy, one.concurrency) == (policy, concurrency):
                again = model.tokens_per_second(one.num_spec_tokens, concurrency)
                assert one.tokens_per_second == pytest.approx(again)
    assert any(check.is_out_of_sample for check in results.checks)


def test_the_tables_of_the_pair_are_the_record_s_and_coupled_drafts_survive_as_they_must() -> None:
    """One draw with shared noise keeps at least (1 - d) / (1 + d), d the total variation.

    Daliri et al. 2024, arXiv 2408.07978; by convexity the mean of d gives a bound, too. Drafts with
    noise of other positions stay far below.
    """
    record = RECORDS / "benchmark-bundled.json"
    document = read_record(record, benchmark_page.Document, "lab.benchmark_page")
    tables = record.with_suffix(".md").read_text(encoding="utf-8")
    assert tables == benchmark_page.as_markdown(document)
    first = {
        (run.setting.policy, run.setting.num_spec_tokens): run.figures.acceptance
        for run in document.lengths.runs
        if run.setting.num_spec_tokens
    }
    for num_spec_tokens in {k for _, k in first}:
        overlap = first["probabilistic", num_spec_tokens].acceptance_rate_per_pos[0]
        coupled = first["strict-coupled", num_spec_tokens].acceptance_rate_per_pos[0]
        assert coupled > overlap / (2 - overlap)
    for run, rate in zip(document.synthetic.runs, benchmark_page.SET_RATES, strict=True):
        assert run.figures.acceptance.acceptance_rate == pytest.approx(rate, abs=0.005)
