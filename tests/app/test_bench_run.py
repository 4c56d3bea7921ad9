"""A benchmark through the engine: what it counts adds up, and set rates come out."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console

from acceptor.app.bench.files import write_record
from acceptor.app.bench.pair import NoText
from acceptor.app.bench.pair import Pair as BenchPair
from acceptor.app.bench.results import BenchResults, read_results
from acceptor.app.bench.run import Bench
from acceptor.app.bench.sweep import PLAIN, Load, Sweep
from acceptor.app.bench.tables import print_results
from acceptor.app.policies import PolicySettings
from acceptor.core import Block, ConfigError, Probabilistic, SamplingParams, Strict
from kit.bench_sums import assert_figures_add_up
from kit.toy_pair import Pair

LOSSLESS: dict[str, PolicySettings] = {
    "strict": Strict(),
    "strict-coupled": Strict(coupled=True),
    "probabilistic": Probabilistic(),
    "block": Block(),
}
LOAD = Load(
    num_requests=12, max_concurrency=4, output_len=30, length_spread=0.5, input_len=5, warm_up=1
)


def make_bench(
    load: Load = LOAD,
    policies: dict[str, PolicySettings] = LOSSLESS,
    lengths: tuple[int, ...] = (0, 3),
    temperatures: tuple[float, ...] = (1.0,),
    max_model_len: int = 64,
) -> Bench:
    decoder = Pair.make(max_model_len=max_model_len).decoder(
        Block(), 1, eos_token_ids={3}, new_detokenizer=NoText
    )
    pair = BenchPair(parts=decoder, names={"target": "toy"})
    sweep = Sweep(
        policies=policies,
        num_spec_tokens=lengths,
        temperatures=temperatures,
        backends=("reference",),
    )
    return Bench(
        pair=pair,
        sweep=sweep,
        load=load,
        sampling=SamplingParams(),
        prompts=pair.reader.prompts(load),
    )


@pytest.fixture(scope="module")
def results() -> BenchResults:
    return make_bench().run()


@pytest.fixture(scope="module")
def few() -> BenchResults:
    load = evolve(LOAD, num_requests=2, output_len=4)
    return make_bench(load, policies={"block": Block()}).run()


def test_every_setting_serves_all_requests_and_adds_up(results: BenchResults) -> None:
    assert [run.setting.label for run in results.runs] == [
        PLAIN,
        *(f"{name}, K=3" for name in LOSSLESS),
    ]
    for run in results.runs:
        assert (run.figures.num_successful, run.figures.num_failed) == (12, 0)
        assert run.figures.peak_concurrency == 4
        assert_figures_add_up(run.figures)
    plain, strict, *_ = (run.figures for run in results.runs)
    assert plain.acceptance.num_plain_tokens == plain.num_output_tokens
    assert strict.acceptance.num_recovered_tokens > 0
    assert strict.acceptance.num_bonus_tokens > 0
    assert plain.num_output_tokens == strict.num_output_tokens


def test_a_rehearsal_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make_bench(lengths=(3,), policies={"block": Block()})
    (once,) = bench.run().runs
    assert not bench.rehearses
    monkeypatch.setattr(Bench, "rehearses", True)
    # Of several passes, on however slow a machine.
    least = 10 * once.figures.duration
    monkeypatch.setattr("acceptor.app.bench.run.LEAST_SECONDS", least)
    ended: dict[str, list[int]] = {}
    (again,) = bench.run(lambda name, total: ended.setdefault(f"{name}: {total}", []).append).runs
    assert {name: sum(numbers) for name, numbers in ended.items()} == {
        "block, K=3, rehearsal: 12": 12,
        "block, K=3: 12": 12,
    }
    assert again.figures.acceptance == once.figures.acceptance
    assert once.rehearsal is None
    assert again.rehearsal is not None
    assert again.rehearsal > 0
    # It is short, so it is served until the middle of several passes can count.
    *before, _ = again.passes
    assert 0 < sum(before) < least
    assert again.figures.duration == sorted(again.passes)[len(again.passes) // 2]
    assert len(once.passes) == 1


def test_arrivals_at_a_rate_are_served_one_after_the_other() -> None:
    load = Load(num_requests=3, output_len=3, input_len=2, request_rate=50.0, warm_up=0)
    figures = make_bench(load, lengths=(0,)).run().runs[0].figures
    assert figures.num_successful == 3
    assert figures.duration > 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda content: content["runs"][1]["figures"]["acceptance"].pop("num_drafts"),
            "runs[1].figures.acceptance.num_drafts: required field missing",
        ),
        (
            lambda content: content["load"].update(num_requests=0),
            "load.num_requests: expected a number in [1, 1000000], got 0",
        ),
        (lambda content: content["runs"].insert(0, 1), "runs[0]: expected a table, got 1"),
        # From before it was written.
        (lambda content: content.pop("sampling"), ""),
        (lambda _: None, ""),
    ],
)
def test_results_are_read_again_or_what_is_wrong_is_one_sentence(
    few: BenchResults, tmp_path: Path, change: Callable[[Any], None], problem: str
) -> None:
    path = tmp_path / "deep" / "results.json"
    write_record(path, few)
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    if not problem:
        assert read_results(path) == few
        return
    with pytest.raises(ConfigError) as caught:
        read_results(path)
    assert str(caught.value) == f"{path}: expected what bench --json writes: {problem}"


@pytest.mark.parametrize("width", [52, 80, 200])
def test_tables_cut_nothing_off(few: BenchResults, width: int) -> None:
    out = StringIO()
    print_results(Console(file=out, width=width), evolve(few, runs=few.runs * 3))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
