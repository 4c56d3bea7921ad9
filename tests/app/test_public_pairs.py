"""Pairs of public models at tiny sizes, with their own shapes otherwise."""

from collections.abc import Callable
from pathlib import Path

import pytest

from acceptor.app.bench.public_pairs import PAIRS
from acceptor.app.bench.results import read_results
from acceptor.app.bundled import bundled_head, bundled_pair
from kit.bench_sums import assert_figures_add_up

Acceptor = Callable[..., tuple[int | str, str, str]]
QUICK = ("--num-requests", 3, "--output-len", 7, "--input-len", 4, "--warm-up", 0)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.usefixtures("tiny_shapes")
def test_a_pair_of_random_weights_is_served_as_others_have_served_it(
    acceptor: Acceptor, tmp_path: Path, name: str
) -> None:
    file, models = tmp_path / "results.json", ("--random-weights", "--target-layers", 7)
    code, out, err = acceptor("bench", "--pair", name, *models, *QUICK, "--json", file)
    assert (code, err) == (0, "")
    for words in (
        "random weights, 7 of ",
        "request throughput (req/s)",
        "total token throughput (tok/s)",
        "P99 TTFT (ms)",
        "median TPOT (ms)",
        "mean ITL (ms)",
        "acceptance length",
        "position 2",
        "at most 1 at a time",
        "at most 16 at a time",
    ):
        assert words in out
    assert "bundled" not in out
    policies = ["strict", "probabilistic", "block"]
    policies += [f"synthetic {rate:g}" for rate in PAIRS[name].rates]
    runs = read_results(file).runs
    assert [(run.setting.max_concurrency, run.setting.label) for run in runs] == [
        (at_once, f"{policy}, K=3") for at_once in (1, 16) for policy in policies
    ]
    for run in runs:
        assert (run.figures.num_successful, run.figures.num_output_tokens) == (3, 21)
        assert_figures_add_up(run.figures)


@pytest.mark.usefixtures("tiny_shapes")
def test_what_is_given_beside_a_pair_counts(acceptor: Acceptor, tmp_path: Path) -> None:
    file, models = tmp_path / "results.json", ("--random-weights", "--target-layers", 7)
    given = ("--policy", "block", "--synthetic-acceptance-rate", 1, "--num-spec-tokens", 2)
    load = (*QUICK, "--max-concurrency", 2)
    assert (
        acceptor("bench", "--pair", "qwen3-eagle3", *models, *given, *load, "--json", file)[0] == 0
    )
    block, synthetic = read_results(file).runs
    assert block.setting.label == "block, K=2"
    assert synthetic.figures.acceptance.acceptance_rate == 1
    assert read_results(file).load.max_concurrency == 2


def test_directories_are_served_in_the_same_way(acceptor: Acceptor, tmp_path: Path) -> None:
    target, file = bundled_pair()[0], tmp_path / "results.json"
    models = ("--target", target, "--draft", bundled_head())
    code, out, _ = acceptor("bench", "--pair", "qwen3-eagle3", *models, *QUICK, "--json", file)
    assert code == 0
    assert "target and eagle3 on CPU" in out
    assert len(read_results(file).runs) == 2 * 4
