"""The figures of a benchmark add up, and are what their names say."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptor.app.bench.figures import figures_of, peak_concurrency, peak_output_throughput
from acceptor.app.bench.latency import PERCENTILES, Distribution, latencies_of
from acceptor.app.bench.requests import Served
from acceptor.app.request import FinishReason, RequestRecord
from kit.bench_sums import assert_figures_add_up


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
def served(draw: st.DrawFn) -> Served:
    made = draw(st.lists(steps(), min_size=1, max_size=8))
    times = sorted(draw(st.lists(st.floats(5.5, 9), min_size=len(made), max_size=len(made))))
    status = draw(st.sampled_from(FinishReason))
    record = record_of(draw(st.floats(0, 5)), times, made, status)
    return Served(record, draw(st.sampled_from(("verse", "prose"))))


@given(st.lists(served(), min_size=1, max_size=6))
def test_figures_add_up(requests: list[Served]) -> None:
    figures = figures_of(requests)
    assert figures.num_successful + figures.num_failed == len(requests)
    assert_figures_add_up(figures)
    for name in ("num_drafts", "num_accepted_tokens", "num_final_tokens"):
        parts = figures.acceptance_by_category.values()
        assert sum(getattr(part, name) for part in parts) == getattr(figures.acceptance, name)
    assert figures.output_throughput * figures.duration == pytest.approx(figures.num_output_tokens)
    assert figures.peak_concurrency <= len(requests)
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
