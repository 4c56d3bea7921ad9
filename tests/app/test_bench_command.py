"""`acceptor bench` as people and machines meet it."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from attrs import astuple

from acceptor.app.bench.plots import latencies as pictured_latencies
from acceptor.app.bench.results import BenchRun, read_results
from acceptor.app.bench.run import Bench
from acceptor.app.bench.sweep import Setting
from acceptor.app.wiring import load_weights

Acceptor = Callable[..., tuple[int | str, str, str]]
Complaint = Callable[..., str]
QUICK = ("--num-requests", 3, "--output-len", 8, "--max-concurrency", 2, "--warm-up", 0)


@pytest.fixture
def bench(acceptor: Acceptor) -> Acceptor:
    return partial(acceptor, "bench")


def test_policies_stand_side_by_side_and_an_earlier_run_beside_a_later_one(
    bench: Acceptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    file, plots = tmp_path / "results.json", tmp_path / "plots"
    sweep = (*QUICK, "--policy", "strict,block", "--num-spec-tokens", "0,2")
    markdown = tmp_path / "results.md"
    code, out, err = bench(*sweep, "--json", file, "--plots", plots, "--markdown", markdown)
    assert (code, err) == (0, "")
    for words in (
        "bundled target and bundled draft",
        "3 requests (built-in prompts) of up to 8 tokens, all at once, at most 2 at a time",
        "output token throughput (tok/s)",
        "P99 TPOT (ms)",
        "acceptance length by category",
    ):
        assert words in out
    heads = [line.split() for line in out.splitlines()[5:7]]
    assert heads == [["strict", "block"], ["plain", "K=2", "K=2"]]
    assert "…" not in out
    assert "| output token throughput (tok/s) |" in markdown.read_text(encoding="utf-8")
    names = ("acceptance-per-position", "latency", "throughput")
    assert {path.name for path in plots.iterdir()} == {f"{name}.svg" for name in names}
    latencies = (plots / "latency.svg").read_text(encoding="utf-8")
    for name in ("time to first token", "time per output token", "inter-token latency"):
        assert name in latencies
    lines = pictured_latencies(read_results(file).runs).panels["inter-token latency"]
    points, _ = lines["plain"]
    assert points[-1] == (read_results(file).runs[0].figures.itl.percentiles[-1], 100.0)
    code, out, err = bench(*QUICK, "--policy", "block,typical", "--compare", file)
    assert (code, err) == (0, "")
    assert "not measured before: block, K=4, temperature 1, backend reference" in out
    code, out, err = bench(*sweep, "--seed", 1, "--top-k", 50, "--compare", file)
    assert "not the same: seed: 0 before, 1 now" in out
    assert "not the same: top_k: not set before, 50 now" in out
    assert out.count("position 1") == 3
    assert "strict, K=2, temperature 1, backend reference" in out
    assert "not measured before" not in out


def test_processor_time_leaves_out_the_clock_on_the_wall(
    bench: Acceptor, tiny: tuple[object, ...], tmp_path: Path
) -> None:
    file, plots = tmp_path / "results.json", tmp_path / "plots"
    markdown = tmp_path / "results.md"
    quick = (*tiny, *QUICK, "--num-spec-tokens", 2, "--cpu-time")
    code, out, err = bench(*quick, "--json", file, "--plots", plots, "--markdown", markdown)
    assert (code, err) == (0, "")
    code, compared, err = bench(*quick, "--compare", file)
    assert (code, err) == (0, "")
    for text in (out, compared, markdown.read_text(encoding="utf-8")):
        assert "output tokens per CPU second" in text
        assert not any(words in text for words in ("TTFT", "TPOT", "duration", "tok/s"))
    assert not (plots / "latency.svg").exists()
    assert "per CPU second" in (plots / "throughput.svg").read_text(encoding="utf-8")


def test_a_sweep_that_is_broken_off_leaves_what_it_had(
    bench: Acceptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, markdown, serve = tmp_path / "results.json", tmp_path / "results.md", Bench.serve

    def until_block(self: Bench, setting: Setting, *more: Any) -> BenchRun:
        if setting.policy == "block":
            raise KeyboardInterrupt
        return serve(self, setting, *more)

    monkeypatch.setattr(Bench, "serve", until_block)
    written = ("--json", file, "--markdown", markdown)
    bench(*QUICK, "--policy", "strict,probabilistic,block", *written)
    assert [run.setting.policy for run in read_results(file).runs] == ["strict", "probabilistic"]
    assert "probabilistic, K=4" in markdown.read_text(encoding="utf-8")


def test_drafters_stand_side_by_side_and_share_their_target(
    bench: Acceptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, drafters = tmp_path / "results.json", ("model", "eagle3", "ngram", "early-exit")
    load = Mock(wraps=load_weights)
    monkeypatch.setattr("acceptor.app.bench.main.load_weights", load)
    sweep = ("--drafter", ",".join(drafters), "--num-spec-tokens", "0,2", "--plots", tmp_path)
    code, out, err = bench(*QUICK, *sweep, "--json", file)
    assert (code, err) == (0, "")
    assert "bundled draft, bundled EAGLE-3 head, n-gram, early exit after layer 5 on CPU" in out
    assert out.count("memory planned") == len(drafters)
    assert load.call_count == len(["target", "draft"])
    results = read_results(file)
    assert [run.setting.label for run in results.runs] == [
        "plain",
        *(f"probabilistic, {name}, K=2" for name in drafters),
    ]
    assert "probabilistic, eagle3" in (tmp_path / "throughput.svg").read_text(encoding="utf-8")


def test_a_sweep_is_every_combination_and_every_concurrency_has_a_table(
    bench: Acceptor, tiny: tuple[object, ...], tmp_path: Path
) -> None:
    file, load = tmp_path / "results.json", (*QUICK, "--max-concurrency", "3,1")
    sweep = ("--num-spec-tokens", "1,2", "--temperature", "0,0.7")
    policies = ("--policy", "strict", "--synthetic-acceptance-rate", "0.5")
    code, out, err = bench(*tiny, *load, *sweep, *policies, "--json", file)
    assert (code, err) == (0, "")
    runs = read_results(file).runs
    assert [(run.figures.peak_concurrency, *astuple(run.setting)) for run in runs] == [
        (at_once, policy, length, temperature, "reference", False, at_once, None)
        for at_once in (3, 1)
        for temperature in (0.0, 0.7)
        for length in (1, 2)
        for policy in ("strict", "synthetic 0.5")
    ]
    tables = [
        out.index(f"temperature {temperature}, backend reference, at most {at_once} at a time")
        for temperature, at_once in (("0", 1), ("0.7", 1), ("0", 3), ("0.7", 3))
    ]
    assert tables == sorted(tables)


def test_random_weights_need_no_draft_model(bench: Acceptor, shape: Callable[..., Path]) -> None:
    models = ("--random-weights", shape("large", num_hidden_layers=4), "--drafter", "early-exit")
    code, out, err = bench(*models, *QUICK, "--draft-layers", 2, "--layer-decay", 0.7)
    assert (code, err) == (0, "")
    assert out.startswith("memory planned: ")
    names = "large, random weights with decay 0.7 and early exit after layer 2"
    assert f"\n{names} on CPU" in out


def test_an_early_exit_from_random_weights_agrees_as_a_trained_draft_would(
    bench: Acceptor, shape: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "results.json"
    sizes = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8}
    deep = shape("deep", vocab_size=2000, **sizes)
    models = ("--random-weights", deep, "--drafter", "early-exit")
    load = ("--num-requests", 4, "--output-len", 16, "--input-len", 8, "--temperature", 0)
    rates = []
    for decay in ((), ("--layer-decay", 1)):
        code, _, err = bench(*models, *load, *decay, "--json", file)
        assert (code, err) == (0, "")
        rates.append(read_results(file).runs[0].figures.acceptance.acceptance_rate)
    usual, flat = rates
    assert 0.25 < usual < 0.95
    assert flat < 0.1


@pytest.mark.parametrize(
    "command", [("bench", "--plots"), ("tune", "--curve"), ("bench", "kernels", "--plot")]
)
def test_a_picture_that_cannot_be_drawn_is_told_before_anything_is_measured(
    complaint: Complaint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = complaint(*command, tmp_path / "picture")
    assert said.startswith(f"{command[-1]}: ")
    assert "pip install 'acceptor[bench]'" in said
