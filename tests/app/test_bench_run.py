"""A benchmark through the engine: its counts add up, and mean what their names say."""

import json
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from acceptor.app.bench.figures import Figures, peak_concurrency, peak_output_throughput
from acceptor.app.bench.files import write_record
from acceptor.app.bench.latency import PERCENTILES, Distribution, latencies_of
from acceptor.app.bench.pair import NoText
from acceptor.app.bench.pair import Pair as BenchPair
from acceptor.app.bench.results import BenchResults, read_results
from acceptor.app.bench.run import Bench
from acceptor.app.bench.sweep import PLAIN, Load, Sweep
from acceptor.app.bench.tables import print_results
from acceptor.app.request import FinishReason, RequestRecord
from acceptor.core import POLICIES, Block, ConfigError, SamplingParams
from kit.bench_sums import assert_figures_add_up
from kit.toy_pair import Pair

LOSSLESS = {name: policy for name, policy in POLICIES.items() if policy.lossless}
LOAD = Load(
    num_requests=12, max_concurrency=4, output_len=30, length_spread=0.5, input_len=5, warm_up=1
)


def make_bench(
    load: Load = LOAD, policies: dict[str, Any] = LOSSLESS, lengths: tuple[int, ...] = (0, 3)
) -> Bench:
    toy = Pair.make(max_model_len=64)
    decoder = toy.decoder(Block(), 1, eos_token_ids={3}, new_detokenizer=NoText)
    pair = BenchPair(parts=decoder, names={"target": "toy"})
    sweep = Sweep(
        policies=policies, num_spec_tokens=lengths, temperatures=(1.0,), backends=("reference",)
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
    plain, *_, strict, _coupled = (run.figures for run in results.runs)
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


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, int, int]:
    """(num_tokens, num_draft_tokens, num_accepted); a stop may come before the final token."""
    num_draft_tokens = draw(st.integers(0, 5))
    num_accepted = draw(st.integers(0, num_draft_tokens))
    has_final = draw(st.booleans()) or num_accepted == 0
    return num_accepted + has_final, num_draft_tokens, num_accepted


def record_of(
    arrival: float,
    times: Sequence[float],
    made: Sequence[tuple[int, int, int]],
    status: FinishReason = FinishReason.LENGTH,
) -> RequestRecord:
    token_times = tuple((time, step[0]) for time, step in zip(times, made, strict=False))
    return RequestRecord(
        request_id=7,
        arrival_time=arrival,
        finish_time=times[-1],
        token_times=token_times,
        prompt_len=3,
        status=status,
        acceptance=tuple(step[1:] for step in made),
    )


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    made = draw(st.lists(steps(), min_size=1, max_size=8))
    times = sorted(draw(st.lists(st.floats(5.5, 9), min_size=len(made), max_size=len(made))))
    status = draw(st.sampled_from(FinishReason))
    return record_of(draw(st.floats(0, 5)), times, made, status)


several = st.lists(records(), min_size=1, max_size=4)


@given(st.dictionaries(st.sampled_from(("verse", "prose")), several, min_size=1))
def test_figures_add_up(requests: dict[str, list[RequestRecord]]) -> None:
    figures, num_requests = Figures.of(requests), sum(map(len, requests.values()))
    assert figures.num_successful + figures.num_failed == num_requests
    assert_figures_add_up(figures)
    for name in ("num_drafts", "num_accepted_tokens", "num_final_tokens"):
        parts = figures.acceptance_by_category.values()
        assert sum(getattr(part, name) for part in parts) == getattr(figures.acceptance, name)
    assert figures.output_throughput * figures.duration == pytest.approx(figures.num_output_tokens)
    assert figures.peak_concurrency <= num_requests
    assert figures.peak_output_throughput >= figures.output_throughput * 0.99


def request(
    arrival: float, *times: float, tokens: int = 1, status: FinishReason = FinishReason.STOP
) -> RequestRecord:
    return record_of(arrival, times, [(tokens, 0, 0)] * len(times), status)


def test_latencies_are_milliseconds_between_what_they_name() -> None:
    latencies = latencies_of([request(1.0, 1.5, 1.7, 2.1, tokens=2)])
    expected = {"ttft": [500.0], "tpot": [150.0], "itl": [200.0, 400.0], "e2el": [1100.0]}
    assert latencies == {name: pytest.approx(values) for name, values in expected.items()}


def test_latencies_leave_out_what_failed_and_what_has_no_rest() -> None:
    latencies = latencies_of([request(0, 1, 2, status=FinishReason.CANCELLED), request(0, 1)])
    assert latencies == {"ttft": [1000.0], "tpot": [], "itl": [], "e2el": [1000.0]}


def test_percentiles_are_interpolated() -> None:
    spread = Distribution.of([float(value) for value in range(101)])
    assert (spread.mean, spread.median, spread.p99) == pytest.approx((50, 50, 99))
    assert spread.percentiles == pytest.approx(PERCENTILES)
    assert Distribution.of([]) == Distribution()


def test_the_peak_is_the_best_second() -> None:
    slow_then_fast = request(0, 1, 2, 3, 3.2, 3.4, 3.6, 3.8, tokens=5)
    assert peak_output_throughput([slow_then_fast]) == pytest.approx(25)
    assert peak_output_throughput([request(0, 0.25, 0.5)]) == pytest.approx(4)


def test_concurrency_counts_who_overlaps() -> None:
    assert peak_concurrency([request(0, 2), request(1, 3), request(2, 4)]) == 2
