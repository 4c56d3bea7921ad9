"""A benchmark through the engine: what it counts adds up, and set rates come out."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import evolve
from rich.console import Console

from acceptor.app.bench.comparison import differences
from acceptor.app.bench.files import write_record
from acceptor.app.bench.pair import NoText
from acceptor.app.bench.pair import Pair as BenchPair
from acceptor.app.bench.results import BenchResults, read_results
from acceptor.app.bench.run import Bench
from acceptor.app.bench.sweep import PLAIN, Load, Sweep
from acceptor.app.bench.tables import print_results
from acceptor.app.policies import PolicySettings, SyntheticSettings
from acceptor.core import Block, ConfigError, Probabilistic, SamplingParams, Strict, Synthetic
from kit.bench_sums import assert_figures_add_up
from kit.toy_pair import Pair
from lab.benchmark_page import standard_error

LOSSLESS: dict[str, PolicySettings] = {
    "strict": Strict(),
    "strict-coupled": Strict(coupled=True),
    "probabilistic": Probabilistic(),
    "block": Block(),
}
LOAD = Load(
    num_requests=12, max_concurrency=4, output_len=30, length_spread=0.5, input_len=5, warm_up=1
)


@pytest.fixture(scope="module")
def make_bench(make_pair: Callable[..., Pair]) -> Callable[..., Bench]:
    def make(
        load: Load = LOAD,
        policies: dict[str, PolicySettings] = LOSSLESS,
        lengths: tuple[int, ...] = (0, 3),
        temperatures: tuple[float, ...] = (1.0,),
        max_model_len: int = 64,
    ) -> Bench:
        decoder = make_pair(max_model_len=max_model_len).decoder(
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

    return make


@pytest.fixture(scope="module")
def results(make_bench: Callable[..., Bench]) -> BenchResults:
    return make_bench().run()


@pytest.fixture(scope="module")
def few(make_bench: Callable[..., Bench]) -> BenchResults:
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


def test_strict_emits_as_much_as_plain_decoding(results: BenchResults) -> None:
    plain, strict, coupled, *_ = (run.figures.num_output_tokens for run in results.runs)
    assert plain == strict == coupled


def test_a_rehearsal_counts_for_nothing(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(lengths=(3,), policies={"block": Block()})
    (once,) = bench.run().runs
    assert not bench.rehearses
    monkeypatch.setattr(Bench, "rehearses", True)
    ended: dict[str, list[int]] = {}
    (again,) = bench.run(lambda name, total: ended.setdefault(f"{name}: {total}", []).append).runs
    assert {name: sum(numbers) for name, numbers in ended.items()} == {
        "block, K=3, rehearsal: 12": 12,
        "block, K=3: 12": 12,
    }
    assert again.figures.acceptance == once.figures.acceptance


def test_on_a_gpu_loads_are_rehearsed_where_speed_is_wanted(
    make_bench: Callable[..., Bench],
) -> None:
    on_gpu: Any = SimpleNamespace(target=SimpleNamespace(device=torch.device("cuda")))
    bench = evolve(make_bench(lengths=(3,), policies={"block": Block()}), pair=on_gpu)
    assert bench.rehearses


def test_arrivals_at_a_rate_are_served_one_after_the_other(
    make_bench: Callable[..., Bench],
) -> None:
    load = Load(num_requests=3, output_len=3, input_len=2, request_rate=50.0, warm_up=0)
    figures = make_bench(load, lengths=(0,)).run().runs[0].figures
    assert figures.num_successful == 3
    assert figures.duration > 0


def test_results_are_the_same_after_a_file(few: BenchResults, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.json"
    write_record(path, few)
    assert read_results(path) == few


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a JSON object, got list"),
        ('{"runs": 3}', "required field missing at .date"),
        ('{"runs": [{"setting": 1}]}', "expected what bench --json writes"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "results.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"results.json: .*{problem}"):
        read_results(path)


def without(content: dict[str, Any], *path: str | int) -> None:
    *way, last = path
    inner: Any = content
    for step in way:
        inner = inner[step]
    del inner[last]


def cut_percentiles(content: dict[str, Any]) -> None:
    content["runs"][0]["figures"]["ttft"]["percentiles"] = [1.0, 2.0]


def ask_for_nothing(content: dict[str, Any]) -> None:
    content["load"]["num_requests"] = 0


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda content: without(content, "load"), "required field missing at .load"),
        (
            lambda content: without(content, "runs", 1, "figures", "acceptance", "num_drafts"),
            "required field missing at .runs[1].figures.acceptance.num_drafts",
        ),
        (cut_percentiles, "percentiles: expected 22 or none, got 2 at .runs[0].figures.ttft"),
        (ask_for_nothing, "num_requests: expected a number in [1, inf), got 0 at .load"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_sentence(
    few: BenchResults, tmp_path: Path, damage: Callable[[Any], None], problem: str
) -> None:
    path = tmp_path / "results.json"
    write_record(path, few)
    content = json.loads(path.read_text(encoding="utf-8"))
    damage(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_results(path)
    assert str(caught.value) == f"{path}: expected what bench --json writes: {problem}"


def test_a_file_from_before_sampling_was_written_is_read(few: BenchResults, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_record(path, few)
    content = json.loads(path.read_text(encoding="utf-8"))
    without(content, "sampling")
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_results(path) == few


@pytest.mark.parametrize("width", [52, 60, 80, 100, 200])
def test_tables_cut_nothing_off(few: BenchResults, width: int) -> None:
    out = StringIO()
    print_results(Console(file=out, width=width), evolve(few, runs=few.runs * 3))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_a_comparison_names_what_was_not_the_same(few: BenchResults) -> None:
    other = evolve(
        few,
        load=evolve(few.load, request_rate=2.0),
        sampling={"top_k": 5},
        models={"target": "other"},
        machine={**few.machine, "torch": "1"},
    )
    assert list(differences(few, few)) == []
    assert list(differences(other, few)) == [
        "request_rate: not set before, 2.0 now",
        "top_k: not set before, 5 now",
        "target: toy before, other now",
        f"torch: {few.machine['torch']} before, 1 now",
    ]


def test_a_set_rate_comes_out(make_bench: Callable[..., Bench]) -> None:
    """The last drafts of an output are shorter, and accepted at a higher rate; so it is long."""
    rate = 0.6
    load = evolve(LOAD, num_requests=12, max_concurrency=12, output_len=560, ignore_eos=True)
    load = evolve(load, length_spread=0.0, input_len=2, warm_up=0)
    policies = {"synthetic": SyntheticSettings(acceptance_rate=rate)}
    bench = make_bench(load, policies, lengths=(3,), temperatures=(0.0,), max_model_len=600)
    figures = bench.run().runs[0].figures
    wanted = Synthetic.from_acceptance_rate(rate, 3).rates
    error = standard_error(wanted, figures.acceptance.num_drafts)
    assert error < 0.01
    assert figures.acceptance.acceptance_rate == pytest.approx(rate, abs=3 * error)
    assert_figures_add_up(figures)
