"""The tables of docs/benchmark.md say what was measured."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from attrs import asdict, evolve

from acceptor.app.bench import document as module
from acceptor.app.bench import pair as pair_module
from acceptor.app.bench.document import LOSSLESS, Document, Measurement, read_document
from acceptor.app.bench.document_tables import write_tables
from acceptor.app.bench.markdown import side_by_side
from acceptor.app.bench.pair import NoText
from acceptor.app.bench.pair import Pair as BenchPair
from acceptor.app.bench.requests import make_arrivals
from acceptor.app.bench.run import Bench, silent
from acceptor.app.bench.sweep import Load, Sweep
from acceptor.app.bench.timed_steps import step_times
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.speed import served as served_module
from acceptor.app.tuning.costs import StepTimes
from acceptor.app.tuning.measure import Plan
from acceptor.core import Block, SamplingParams
from kit.bench_sums import assert_figures_add_up
from kit.toy_pair import Pair

pytestmark = pytest.mark.slow
LOAD = Load(num_requests=6, max_concurrency=3, output_len=12, input_len=3, warm_up=0)


def toy_pair() -> BenchPair:
    toys = Pair.make(max_model_len=32)
    return BenchPair(
        target=toys.target,
        draft=toys.draft,
        encode=None,
        new_detokenizer=NoText,
        eos_token_ids=frozenset(),
        names={"target": "toy"},
    )


@pytest.fixture(scope="module")
def document() -> Iterator[Document]:
    pair = toy_pair()
    measurement = Measurement(
        pair=pair, backend="reference", load=LOAD, files={}, lengths=(1, 2), begin=silent
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SYNTHETIC_LOAD", LOAD)
        patch.setattr(module, "TIMED_STEPS", 10)
        yield measurement.document()


def test_a_document_is_the_same_after_its_file(document: Document, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text(json.dumps(asdict(document)), encoding="utf-8")
    assert read_document(path) == document


def test_its_tables_hold_every_policy(document: Document, tmp_path: Path) -> None:
    out = tmp_path / "data"
    out.mkdir()
    write_tables(document, "toy", out)
    tables = {path.stem: path.read_text(encoding="utf-8") for path in out.iterdir()}
    assert tables.keys() == {
        f"benchmark-toy-{part}"
        for part in ("where", "datasets", "strict", "lengths", "greedy", "synthetic", "steps")
    }
    for part in ("datasets", "strict", "lengths", "greedy"):
        assert all(policy in tables[f"benchmark-toy-{part}"] for policy in LOSSLESS)
    for name, text in tables.items():
        lines = text.splitlines()
        assert len({line.count("|") for line in lines}) == 1, name
    assert tables["benchmark-toy-lengths"].count("\n") == 2 + 1 + 2 * len(LOSSLESS)
    assert len(list((tmp_path / "figures").iterdir())) == 2


def test_every_policy_is_one_rule_for_greedy_requests(document: Document) -> None:
    for name, kinds in (("all greedy", {"greedy"}), ("half greedy", {"greedy", "sampled"})):
        first, *others = (run.figures for run in document.greedy[name].runs)
        assert first.acceptance_by_category.keys() == kinds
        for other in others:
            assert_figures_add_up(other)
            greedy = other.acceptance_by_category["greedy"]
            assert greedy == first.acceptance_by_category["greedy"]


def test_captured_steps_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(action: Callable[[], None]) -> Callable[[], None]:
        action()
        return action

    def milliseconds(replay: Callable[[], None]) -> float:
        replay()
        return 1.5

    monkeypatch.setattr(pair_module, "EagerRunner", partial(GraphRunner, record=record))
    monkeypatch.setattr(served_module, "milliseconds", milliseconds)
    pair = toy_pair()
    load = evolve(LOAD, greedy_share=0.5)
    sweep = Sweep(
        policies={"block": Block()},
        num_spec_tokens=(3,),
        temperatures=(1.0,),
        backends=("reference",),
    )
    prompts = pair.reader.prompts(load)
    bench = Bench(pair=pair, sweep=sweep, load=load, sampling=SamplingParams(), prompts=prompts)
    plan = Plan(lengths=(3,), concurrencies=(1, 3), num_steps=10)
    arrivals = make_arrivals(load, prompts, SamplingParams())
    times = StepTimes(draft=0.0015, target=0.0015, verification=0.0015)
    assert dict(step_times(bench, arrivals, plan)) == {1: times, 3: times}


def test_columns_are_compared_with_the_first(document: Document) -> None:
    runs = document.lengths.runs
    table = side_by_side([runs[0], runs[0]], ["output token throughput (tok/s)"])
    assert table.splitlines()[-1].endswith("(+0.0 %) |")
