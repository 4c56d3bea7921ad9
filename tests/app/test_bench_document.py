"""The tables of docs/benchmark.md say what was measured."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import asdict

from acceptor.app.bench import document as module
from acceptor.app.bench.document import LOSSLESS, Document, Measurement, read_document
from acceptor.app.bench.document_tables import write_tables
from acceptor.app.bench.markdown import side_by_side
from acceptor.app.bench.pair import NoText
from acceptor.app.bench.pair import Pair as BenchPair
from acceptor.app.bench.run import silent
from acceptor.app.bench.sweep import Load
from kit.bench_sums import assert_figures_add_up
from kit.toy_pair import Pair

pytestmark = pytest.mark.slow
LOAD = Load(num_requests=6, max_concurrency=3, output_len=12, input_len=3, warm_up=0)


@pytest.fixture(scope="module")
def document() -> Iterator[Document]:
    toys = Pair.make(max_model_len=32)
    pair = BenchPair(
        target=toys.target,
        draft=toys.draft,
        encode=None,
        new_detokenizer=NoText,
        eos_token_ids=frozenset(),
        names={"target": "toy"},
    )
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


def test_columns_are_compared_with_the_first(document: Document) -> None:
    runs = document.lengths.runs
    table = side_by_side([runs[0], runs[0]], ["output token throughput (tok/s)"])
    assert table.splitlines()[-1].endswith("(+0.0 %) |")
