"""The script of the benchmark's page measures every table, and its tables say what was measured."""

from pathlib import Path

import pytest

from acceptor.app.bench.files import read_record, write_record
from acceptor.app.bench.pair import NoText
from acceptor.app.bench.pair import Pair as BenchPair
from acceptor.app.bench.sweep import Load
from acceptor.core import Block
from kit.toy_pair import Pair
from lab import benchmark_page
from lab.benchmark_page import POLICY_NAMES, Document, as_markdown, draw, measure

LOAD = Load(num_requests=4, max_concurrency=2, output_len=6, input_len=3, warm_up=0)


@pytest.fixture(scope="module")
def document() -> Document:
    decoder = Pair.make(max_model_len=32).decoder(Block(), 1, new_detokenizer=NoText)
    pair = BenchPair(parts=decoder, names={"target": "toy"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark_page, "SYNTHETIC_LOAD", LOAD)
        return measure(pair, LOAD, {})


def test_every_table_holds_every_policy(document: Document) -> None:
    text = as_markdown(document)
    for policy in POLICY_NAMES:
        assert text.count(policy) >= 1 + 3 + 1
    for block in text.split("\n\n"):
        assert len({line.count("|") for line in block.splitlines()}) == 1
    assert "4 requests of 6 tokens" in text
    compared = next(line for line in text.splitlines() if line.startswith("| acceptance rate (%)"))
    assert compared.count(" (+") + compared.count(" (-") == len(POLICY_NAMES) - 1


def test_what_was_measured_is_read_again_and_drawn(document: Document, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, document)
    assert read_record(path, Document, "lab.benchmark_page") == document
    draw(document, tmp_path)
    assert len(list(tmp_path.glob("*.svg"))) == 2
