"""The pages on benchmarks know only flags that there are, and their tables are the records'."""

import re
from itertools import product
from pathlib import Path

import click
import pytest
from attrs import evolve

from acceptor.app.bench.command import bench
from acceptor.app.bench.document import main as document
from acceptor.app.bench.document import read_document
from acceptor.app.bench.markdown import as_markdown
from acceptor.app.bench.results import read_results
from acceptor.app.training.__main__ import main as train
from acceptor.app.training.report import main as report
from acceptor.app.tuning.command import tune
from acceptor.app.tuning.markdown import as_markdown as tuned_as_markdown
from acceptor.app.tuning.results import read_results as read_tuned

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "commands"),
    [
        ("benchmark.md", (bench, tune, document)),
        ("benchmark-gpu.md", (bench, tune)),
        ("bundled-pair.md", (train, report, document)),
    ],
)
def test_every_flag_of_a_page_exists(page: str, commands: tuple[click.Command, ...]) -> None:
    named = set(re.findall(r"--[a-z][a-z-]+", (DOCS / page).read_text(encoding="utf-8")))
    known = {name for command in commands for option in command.params for name in option.opts}
    assert named
    assert named <= known


RECORDS = DOCS / "data"
TUNED = sorted(path.stem for path in RECORDS.glob("tune*.json"))
BENCHMARKS = ["benchmark-adaptive", *(path.stem for path in RECORDS.glob("benchmark-gpu*.json"))]


@pytest.mark.parametrize("name", TUNED)
def test_tables_of_tuning_are_what_the_record_says(name: str) -> None:
    results = read_tuned(RECORDS / f"{name}.json")
    written = (RECORDS / f"{name}.md").read_text(encoding="utf-8")
    assert written == tuned_as_markdown(results)
    for policy, concurrency in product(results.policies, results.concurrencies):
        model = results.policies[policy].goodput()
        for one in results.predictions:
            if (one.policy, one.concurrency) == (policy, concurrency):
                again = model.tokens_per_second(one.num_spec_tokens, concurrency)
                assert one.tokens_per_second == pytest.approx(again)
    assert not results.checks or any(check.is_out_of_sample for check in results.checks)


def test_what_is_said_of_tuning_on_a_gpu_is_the_records() -> None:
    page = " ".join((DOCS / "benchmark-gpu.md").read_text(encoding="utf-8").split())
    first, later = (read_tuned(RECORDS / f"tune-gpu{end}.json") for end in ("-checked", ""))
    assert not later.checks
    prefill = {name: f"{1000 * one.prefill_seconds:.0f} ms" for name, one in later.policies.items()}
    of_first = 1000 * first.policies["probabilistic"].prefill_seconds
    assert f"{of_first:.0f} ms for each" in page
    assert f"{prefill['probabilistic']} under probabilistic and {prefill['block']} under" in page
    served = {evolve(one.prediction, tokens_per_second=0): one.measured for one in first.checks}
    errors = sorted(
        one.tokens_per_second / served[key] - 1
        for one in later.predictions
        if (key := evolve(one, tokens_per_second=0)) in served
    )
    assert len(errors) == len(served) == 12
    *usual, high, highest = (f"{100 * error:.0f}" for error in errors)
    assert f"is {usual[0]} to +{usual[-1]} % from what" in page
    assert f"{high} and {highest} % above" in page


@pytest.mark.parametrize("name", BENCHMARKS)
def test_tables_of_benchmarks_are_what_the_record_says(name: str) -> None:
    results = read_results(RECORDS / f"{name}.json")
    written = (RECORDS / f"{name}.md").read_text(encoding="utf-8")
    on_cpu = results.machine["device"].startswith("CPU")
    assert written == as_markdown(results, cpu_time=on_cpu)


@pytest.mark.parametrize("name", ["bundled", "large"])
def test_coupled_drafts_survive_as_often_as_shared_noise_lets_them(name: str) -> None:
    """One draw with shared noise keeps at least (1 - d) / (1 + d), d the total variation.

    Daliri et al. 2024, arXiv 2408.07978; by convexity the mean of d tells a bound, too. Ours has
    two levels and is held to it at each; these records keep it in all. Drafts with noise of other
    positions stay far below.
    """
    runs = read_document(RECORDS / f"benchmark-{name}.json").lengths.runs
    first = {
        (run.setting.policy, run.setting.num_spec_tokens): run.figures.acceptance
        for run in runs
        if run.setting.num_spec_tokens
    }
    for num_spec_tokens in {k for _, k in first}:
        overlap = first["probabilistic", num_spec_tokens].acceptance_rate_per_pos[0]
        assert first["strict-coupled", num_spec_tokens].acceptance_rate_per_pos[0] > (
            overlap / (2 - overlap)
        )
