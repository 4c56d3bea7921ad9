"""The tables of docs/benchmark.md say what was measured."""

import json
from pathlib import Path

import pytest
from attrs import evolve

from acceptor.app.bench import document as module
from acceptor.app.bench.document import (
    LOSSLESS,
    Document,
    Measurement,
    measure_into,
    read_document,
)
from acceptor.app.bench.document_tables import write_tables
from acceptor.app.bench.markdown import side_by_side
from acceptor.app.bench.pair import NoText
from acceptor.app.bench.pair import Pair as BenchPair
from acceptor.app.bench.run import silent
from acceptor.app.bench.sweep import Load
from acceptor.core import ConfigError
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
def measurement() -> Measurement:
    return Measurement(
        pair=toy_pair(),
        backend="reference",
        load=LOAD,
        files={},
        lengths=(1, 2),
        begin=silent,
        timed_load=evolve(LOAD, num_requests=5, output_len=20),
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, measurement: Measurement) -> Path:
    path = tmp_path_factory.mktemp("document") / "document.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SYNTHETIC_LOAD", LOAD)
        measure_into(path, measurement, lambda _: None)
    return path


@pytest.fixture(scope="module")
def document(file: Path) -> Document:
    return read_document(file)


def test_a_measurement_goes_on_where_it_was_broken_off(
    file: Path, measurement: Measurement, tmp_path: Path
) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    assert list(content) == list(measurement.parts())
    del content["greedy"]
    broken = tmp_path / "document.json"
    broken.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match="a measured document: required field missing"):
        read_document(broken)
    reported: list[str] = []
    measure_into(broken, measurement, reported.append)
    assert [line.partition(":")[0] for line in reported] == ["greedy"]
    whole, again = read_document(file), read_document(broken)
    assert evolve(again, greedy=whole.greedy) == whole


def test_its_tables_hold_every_policy(document: Document, tmp_path: Path) -> None:
    out = tmp_path / "data"
    out.mkdir()
    write_tables(document, "toy", out)
    tables = {path.stem: path.read_text(encoding="utf-8") for path in out.iterdir()}
    assert tables.keys() == {
        f"benchmark-toy-{part}"
        for part in ("where", "datasets", "strict", "lengths", "greedy", "synthetic")
    }
    for part in ("datasets", "strict", "lengths", "greedy"):
        assert all(policy in tables[f"benchmark-toy-{part}"] for policy in LOSSLESS)
    for name, text in tables.items():
        lines = text.splitlines()
        assert len({line.count("|") for line in lines}) == 1, name
    assert tables["benchmark-toy-lengths"].count("\n") == 2 + 1 + 2 * len(LOSSLESS)
    assert "5 requests of 20 tokens" in tables["benchmark-toy-where"]
    assert "; 6 of 12 where only acceptance is shown" in tables["benchmark-toy-where"]
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
