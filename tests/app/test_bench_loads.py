"""The load of a benchmark: prompts, arrivals, and public pairs of models."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptor.app.bench.main import _prompts_name
from acceptor.app.bench.public_pairs import PAIRS
from acceptor.app.bench.requests import (
    Prompt,
    Reader,
    choose,
    make_arrivals,
    of_categories,
    poisson_times,
    read_questions,
    spread_lengths,
    synthetic_prompts,
)
from acceptor.app.bench.results import read_results
from acceptor.app.bench.sweep import Load
from acceptor.app.bundled import bundled_head, bundled_pair
from acceptor.core import ConfigError, InvalidInputError, SamplingParams
from kit.bench_sums import assert_figures_add_up

QUESTIONS = (
    {"question_id": 1, "category": "cooking", "turns": ["Name a soup.", "Name another one."]},
    {"question_id": 2, "category": "cooking", "turns": ["What is salt?"], "reference": ["A salt."]},
    {"question_id": 3, "category": "rain", "prompt": "Why does it rain so much here?"},
)
READER = Reader(
    encode=lambda text: [ord(letter) for letter in text], vocab_size=500, max_model_len=40
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    lines = [json.dumps(question) for question in QUESTIONS]
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return path


def test_the_first_turn_of_every_question_is_asked(file: Path) -> None:
    assert read_questions(file) == [
        ("cooking", "Name a soup."),
        ("cooking", "What is salt?"),
        ("rain", "Why does it rain so much here?"),
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "expected a question per line, got none"),
        ("{", r"questions.jsonl:1: expected JSON"),
        ("[1]", r"questions.jsonl:1: expected an object, got list"),
        ('{"turns": [3]}', r"questions.jsonl:1: expected turns"),
    ],
)
def test_another_file_is_refused_by_its_line(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        read_questions(path)


def test_categories_choose_questions(file: Path) -> None:
    assert of_categories(read_questions(file), ["rain"]) == read_questions(file)[2:]
    with pytest.raises(InvalidInputError, match="expected one of cooking, rain, got 'snow'"):
        of_categories(read_questions(file), ["snow"])


def test_prompts_that_leave_no_room_are_left_out(file: Path) -> None:
    prompts = READER.prompts(Load(num_requests=5, warm_up=1, output_len=20), file)
    assert len(prompts) == 6
    assert {prompt.category for prompt in prompts} == {"cooking"}
    with pytest.raises(ConfigError, match="at most 5 tokens"):
        READER.prompts(Load(output_len=35), file)


def test_all_prompts_come_before_any_comes_twice() -> None:
    prompts = [Prompt("all", (number,)) for number in range(7)]
    chosen = choose(prompts, 17, 9, seed=3)
    assert set(chosen[:7]) == set(chosen[7:14]) == set(prompts)
    assert chosen == choose(prompts, 17, 9, seed=3)
    assert chosen != choose(prompts, 17, 9, seed=4)


def test_lengths_spread_around_the_one_that_is_asked_for() -> None:
    lengths = spread_lengths(20, 0.5, 400, seed=0)
    assert (min(lengths), max(lengths)) == (10, 30)
    assert set(spread_lengths(20, 0.0, 9, seed=0)) == {20}
    drawn = synthetic_prompts([3, 1, 4], vocab_size=5, seed=0)
    assert [len(prompt.token_ids) for prompt in drawn] == [3, 1, 4]
    assert max(max(prompt.token_ids) for prompt in drawn) < 5


def test_arrivals_come_at_their_rate() -> None:
    times = poisson_times(4000, 8.0, seed=1)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(500, rel=0.1)
    assert poisson_times(3, None, seed=1) == [0, 0, 0]


def test_a_load_gives_every_setting_the_same_requests() -> None:
    load = Load(num_requests=3, warm_up=2, output_len=8, input_len=6, length_spread=0.5, seed=5)
    prompts = READER.prompts(load)
    one, other = (
        make_arrivals(load, prompts, SamplingParams(temperature=temperature))
        for temperature in (0.0, 1.0)
    )
    assert len(one) == 2 + 3
    for mine, theirs in zip(one, other, strict=True):
        assert mine.request.prompt_token_ids == theirs.request.prompt_token_ids
        assert mine.request.params.seed == theirs.request.params.seed
        assert mine.request.max_tokens == theirs.request.max_tokens
    assert len({arrival.request.params.seed for arrival in one}) == 5


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


def test_prompts_are_named_after_what_they_come_from(file: Path) -> None:
    options = {"file": file, "category": ("rain",), "input_len": None, "random_weights": None}
    assert _prompts_name(options) == "questions.jsonl/rain"
    assert _prompts_name({**options, "file": None}) == "built-in/rain"
    assert _prompts_name({**options, "input_len": 4}) == "synthetic"


def test_directories_are_served_in_the_same_way(acceptor: Acceptor, tmp_path: Path) -> None:
    target, file = bundled_pair()[0], tmp_path / "results.json"
    models = ("--target", target, "--draft", bundled_head())
    code, out, _ = acceptor("bench", "--pair", "qwen3-eagle3", *models, *QUICK, "--json", file)
    assert code == 0
    assert "target and eagle3 on CPU" in out
    assert len(read_results(file).runs) == 2 * 4
