"""Tuning: its model of measurements, and the command."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, product
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from acceptor.app.bench.requests import TimedRequest
from acceptor.app.decode import DecodeStep
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits
from acceptor.app.request import GenerationRequest
from acceptor.app.tuning import tuner
from acceptor.app.tuning.costs import StepCosts, StepTimes
from acceptor.app.tuning.goodput import Goodput, predict, recommend
from acceptor.app.tuning.measure import Measurement, Plan, goodput_of
from acceptor.app.tuning.profile import AcceptanceProfile, steps_for
from acceptor.app.tuning.results import read_results
from acceptor.core import InvalidInputError, Probabilistic, Synthetic
from kit.toy_pair import Pair, record

chances = st.lists(st.floats(0, 1), min_size=1, max_size=5)


def profile(*conditional: float) -> AcceptanceProfile:
    return AcceptanceProfile(conditional, tuple(1 for _ in conditional))


def test_a_place_is_counted_over_the_drafts_that_came_to_it() -> None:
    counted = AcceptanceProfile.of([(3, 3), (3, 1), (3, 0), (1, 1), (0, 0)])
    assert counted.num_offered == (4, 2, 1)
    assert counted.conditional == (3 / 4, 1 / 2, 1 / 1)
    assert AcceptanceProfile.of([]).through(2) == [0.0, 0.0]


@given(chances, st.integers(0, 7))
def test_the_law_of_accepted_tokens_is_a_law(conditional: list[float], length: int) -> None:
    known = profile(*conditional)
    law = known.law_of_accepted(length)
    assert sum(law) == pytest.approx(1)
    assert min(law) >= 0
    mean = sum(num * share for num, share in enumerate(law))
    assert sum(known.through(length)) == pytest.approx(mean)


def test_steps_are_the_mean_over_all_ways() -> None:
    # K = 2 and three tokens: 0, 1 or 2 accepted first; then at most one more can be drafted.
    first, second = 0.6, 0.5
    none, one, two = 1 - first, first * (1 - second), first * second
    two_left = 2 - first
    assert steps_for(profile(first, second), 2, 3) == pytest.approx(
        1 + none * two_left + one * 1 + two * 0
    )


def costs(draft: float, target: float, per_request: float = 0.0) -> StepCosts:
    return StepCosts.of(
        (
            (num_reqs, length),
            StepTimes(draft=draft * length, target=target + per_request * num_reqs),
        )
        for num_reqs, length in product((1, 5), (0, 1, 4))
    )


def model(conditional: float, known: StepCosts, output_len: int, prefill: float = 0.0) -> Goodput:
    return Goodput(
        profile=profile(conditional),
        costs=known.rows,
        prefill_seconds=prefill,
        output_len=output_len,
    )


def test_costs_go_on_beyond_the_sizes_that_were_measured() -> None:
    """So throughput does not grow without limit beyond the measured numbers of requests."""
    known = costs(draft=2.0, target=10.0, per_request=1.0)
    assert known.seconds(9, 0) == pytest.approx(19)
    assert known.seconds(1000, 3) == pytest.approx(1016)
    expected = 8 / steps_for(profile(0.5), 3, 8)
    assert model(0.5, known, 8).tokens_per_second(3, 10**6) == pytest.approx(expected, rel=1e-3)


def test_costs_bend_where_they_were_measured_and_do_not_fall_beyond() -> None:
    seconds = {2: 4.0, 4: 8.0, 8: 10.0, 16: 9.0}
    known = StepCosts({(size, 1): StepTimes(target=cost) for size, cost in seconds.items()})
    for size, cost in ((1, 2.0), (3, 6.0), (6, 9.0), (12, 9.5), (99, 9.0)):
        assert known.seconds(size, 1) == pytest.approx(cost)
    steep = StepCosts({(size, 1): StepTimes(target=cost) for size, cost in ((4, 1.0), (8, 9.0))})
    assert steep.seconds(1, 1) == pytest.approx(0.25)  # a share: what is left of a line is below 0
    alone = StepCosts({(2, 1): StepTimes(target=4.0)})
    assert alone.seconds(1, 1) == alone.seconds(9, 1) == 4.0


def test_costs_are_medians_and_rare_lengths_do_not_count() -> None:
    samples = [*((2, seconds) for seconds in (1, 2, 3, 4, 99)), (3, 500)]
    known = StepCosts.of(((1, length), StepTimes(target=value)) for length, value in samples)
    assert known.medians.keys() == {(1, 2)}
    assert known.seconds(1, 2) == 3
    few = StepCosts.of(((1, length), StepTimes()) for length in (0, 0, 2, 4))
    assert few.medians.keys() == {(1, 0), (1, 2), (1, 4)}
    with pytest.raises(InvalidInputError, match="expected a measured step"):
        StepCosts.of([])


def test_goodput_is_tokens_over_prompts_and_steps() -> None:
    # Two steps of 10 + 3 seconds for four requests, whose prompts take half a second each.
    speed = model(1.0, costs(1.0, 10.0), 8, prefill=0.5).tokens_per_second(3, 4)
    assert speed == pytest.approx(32 / (2 * 13 + 2))


@pytest.mark.parametrize(("draft_cost", "best"), [(0.01, 8), (50.0, 0)])
def test_the_cheaper_the_drafts_the_longer_recommended_ones(draft_cost: float, best: int) -> None:
    predictions = predict({"strict": model(0.9, costs(draft_cost, 10.0), 90)}, range(9), [1, 5])
    assert recommend(predictions, 5).num_spec_tokens == best


def measured(pair: Pair, plan: Plan, lengths: Sequence[int], **limits: int) -> list[Measurement]:
    """An engine for each K, as captured steps have one; prompts are entered once beforehand."""
    measurements = []
    requests = [
        GenerationRequest(prompt_token_ids=[1] * length, max_tokens=9, ignore_eos=True)
        for length in lengths
    ]
    for length in plan.lengths:
        parts = evolve(pair.decoder(Probabilistic(), length), new_runner=recorded)
        arrivals = [TimedRequest(request, "all") for request in requests]
        one = Measurement(Engine.of(parts, Limits(**limits)), plan).take(arrivals)
        assert one.engine.add_request(requests[0]) == len(requests) + len(one.records)
        measurements.append(one)
    return measurements


def test_prompts_take_the_time_to_enter_them(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the clock is a second later, and prompts are entered between two readings."""
    ticks = count()
    monkeypatch.setattr(Plan, "clock", lambda _: next(ticks))
    plan = Plan(lengths=(1,), concurrencies=(1,), num_steps=8)
    (one,) = measured(pair, plan, [40, 1], num_slots=1, max_len=64)
    shares = [record.prompt_len > 1 for record in one.records]
    assert one.engine.loop.prefill_seconds == sum(shares) > 0
    assert goodput_of([one]).prefill_seconds == fmean(shares)


def test_steps_that_are_captured_are_timed_whole_and_as_they_are_served(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device begins a step before the host has read the last one, where it may."""
    is_ahead: list[bool] = []
    begin = GraphRunner.begin

    def noted(self: GraphRunner, *arguments: Any) -> bool:
        is_ahead.append(begin(self, *arguments))
        return is_ahead[-1]

    monkeypatch.setattr(GraphRunner, "begin", noted)
    plan = Plan(lengths=(0, 3), concurrencies=(1, 2), num_steps=12)
    model = goodput_of(measured(pair, plan, [1, 1, 1], num_slots=2, max_len=16))
    assert any(is_ahead)
    medians = model.step_costs.medians
    assert {(2, 0), (2, 3)} <= medians.keys() <= set(product((1, 2), (0, 3)))
    for times in medians.values():
        assert times.graph > 0
        assert times.draft == times.target == times.verification == 0
    assert len(model.profile.conditional) == 3
    assert model.output_len == 9


def recorded(step: DecodeStep) -> GraphRunner:
    return GraphRunner(step, record)


Acceptor = Callable[..., tuple[int | str, str, str]]
QUICK = ("--num-requests", 2, "--output-len", 6, "--steps", 10, "--num-spec-tokens", "0,1,3")


@pytest.fixture
def tune(acceptor: Acceptor, tiny: tuple[object, ...]) -> Acceptor:
    return partial(acceptor, "tune", *tiny)


def test_it_measures_predicts_checks_and_recommends(
    tune: Acceptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "CHECK_ROUNDS", 1)
    file, curve = tmp_path / "tuned.json", tmp_path / "curve.svg"
    load = ("--policy", "block", "--concurrency", "1,2", "--predict-concurrency", 3)
    markdown = tmp_path / "tuned.md"
    files = ("--json", file, "--curve", curve, "--markdown", markdown)
    code, out, err = tune(*QUICK, *load, *files, "--check", "--cpu-time")
    assert (code, err) == (0, "")
    for words in (
        "drafts accepted through a position (%)",
        "milliseconds of a step under block",
        "predicted tokens per CPU second, 2 at a time",
        "prediction error:",
        "1 at a time: take ",
        "2 at a time: take ",
        "3 at a time: take ",
        "at worst; out of sample ",
        "%)*",
        "These figures are rough: take --steps 15 or more.",
    ):
        assert words in out
    drawn = curve.read_text(encoding="utf-8")
    for words in ("3 at a time", "tokens per CPU second", "plain", "block, measured"):
        assert words in drawn
    assert "seconds of processor time" in markdown.read_text(encoding="utf-8")
    results = read_results(file)
    assert results.concurrencies == [1, 2, 3]
    predicted = {(one.policy, one.num_spec_tokens) for one in results.predictions}
    assert predicted == {("plain", 0), ("block", 1), ("block", 2), ("block", 3)}
    checked = {
        (one.prediction.num_spec_tokens, one.prediction.concurrency): one for one in results.checks
    }
    assert set(checked) == set(product((0, 1, 2, 3), (1, 2, 3)))
    for (length, concurrency), check in checked.items():
        assert (check.is_new_length, check.is_new_concurrency) == (length == 2, concurrency == 3)
    model = results.policies["block"]
    for one in results.predictions:
        again = model.tokens_per_second(one.num_spec_tokens, one.concurrency)
        assert one.tokens_per_second == pytest.approx(again)


def test_all_steps_of_a_captured_engine_have_its_k_so_that_few_suffice(
    tune: Acceptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceptor.app.bench.pair.EagerRunner", recorded)
    code, out, _ = tune(*QUICK, "--policy", "strict", "--concurrency", 1)
    assert (code, "figures are rough" in out) == (0, False)


@pytest.mark.parametrize("models", [None, ("--drafter", "eagle3")], ids=["a draft model", "a head"])
def test_a_benchmark_adapts_k_by_what_was_tuned(
    acceptor: Acceptor, tiny: tuple[object, ...], tmp_path: Path, models: tuple[object, ...] | None
) -> None:
    file, models = tmp_path / "tuned.json", models or tiny
    measured = (*models, *QUICK, "--policy", "block", "--concurrency", 2, "--json", file)
    assert acceptor("tune", *measured)[0] == 0
    load = ("--num-requests", 2, "--output-len", 12, "--num-spec-tokens", 2, "--adaptive", file)
    code, out, _ = acceptor("bench", *models, *load, "--policy", "block", "--plots", tmp_path)
    assert code == 0
    assert "K≤2" in out
    assert "block, K≤2" in (tmp_path / "throughput.svg").read_text(encoding="utf-8")
    code, _, err = acceptor("bench", *models, *load, "--policy", "strict")
    assert code == 2
    assert "expected a measured run of strict, got block" in err


def test_a_set_rate_is_that_of_the_longest_drafts(tune: Acceptor, tmp_path: Path) -> None:
    """So random weights can be tuned; shorter drafts are accepted with the same chances."""
    file = tmp_path / "tuned.json"
    rate = ("--synthetic-acceptance-rate", 0.7, "--output-len", 60, "--num-spec-tokens", "1,3")
    load = ("--num-requests", 4, "--steps", 80, "--concurrency", 4)
    code, out, _ = tune(*load, *rate, "--json", file)
    assert (code, "figures are rough" in out) == (0, False)
    (profile,) = (one.profile for one in read_results(file).policies.values())
    expected = Synthetic.from_acceptance_rate(0.7, 3)
    chances = zip(profile.conditional, expected.conditional_rates, profile.num_offered, strict=True)
    for measured, chance, num_offered in chances:
        assert num_offered > 50
        assert measured == pytest.approx(
            chance, abs=4 * (chance * (1 - chance) / num_offered) ** 0.5
        )
