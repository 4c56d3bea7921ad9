"""`acceptor tune` as people and machines meet it."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from acceptor.app.tuning import tuner
from acceptor.app.tuning.results import read_results
from acceptor.core import Synthetic

Acceptor = Callable[..., tuple[int | str, str, str]]
QUICK = ("--num-requests", 2, "--output-len", 6, "--steps", 10, "--num-spec-tokens", "0,1,3")


HEAD = ("--drafter", "eagle3")


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
    ):
        assert words in out
    drawn = curve.read_text(encoding="utf-8")
    for words in ("3 at a time", "tokens per CPU second", "plain", "block, measured"):
        assert words in drawn
    assert "seconds of processor time" in markdown.read_text(encoding="utf-8")
    results = read_results(file)
    assert results.concurrencies == [1, 2, 3]
    assert {(one.policy, one.num_spec_tokens) for one in results.predictions} == {
        ("plain", 0),
        ("block", 1),
        ("block", 2),
        ("block", 3),
    }
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


@pytest.mark.parametrize("models", [None, HEAD], ids=["a draft model", "a head"])
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
    """Random weights can so be tuned; shorter drafts are accepted at the same chances."""
    file = tmp_path / "tuned.json"
    rate = ("--synthetic-acceptance-rate", 0.7, "--output-len", 60, "--num-spec-tokens", "1,3")
    assert (
        tune("--num-requests", 4, "--steps", 80, "--concurrency", 4, *rate, "--json", file)[0] == 0
    )
    (profile,) = (one.profile for one in read_results(file).policies.values())
    expected = Synthetic.from_acceptance_rate(0.7, 3)
    chances = zip(profile.conditional, expected.conditional_rates, profile.num_offered, strict=True)
    for measured, chance, num_offered in chances:
        assert num_offered > 50
        assert measured == pytest.approx(
            chance, abs=4 * (chance * (1 - chance) / num_offered) ** 0.5
        )
