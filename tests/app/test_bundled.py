"""The bundled pair agrees with its page and record; a similar one is trained in miniature."""

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import asdict
from transformers import AutoTokenizer, LlamaForCausalLM

from acceptor.app import bundled
from acceptor.app.bench.requests import BUILT_IN, read_questions
from acceptor.app.bundled import bundled_head, bundled_pair
from acceptor.app.config import Config, DecodingConfig, DrafterConfig
from acceptor.app.wiring import wire
from acceptor.core import UnavailableError
from kit.toy_requests import ask
from lab.pair.learner import Recipe, Shape
from lab.pair.measures import AGREEMENT, measure_agreement, write_rows
from lab.pair.text import END_OF_TEXT_ID
from lab.pair.training import train_pair, variation_share

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    path = bundled_pair()[0].parent / "record.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def models() -> dict[str, LlamaForCausalLM]:
    return {
        path.name: LlamaForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        for path in bundled_pair()
    }


def test_models_have_the_recorded_parameters(
    models: dict[str, LlamaForCausalLM], record: dict[str, Any]
) -> None:
    for name, model in models.items():
        parameters = sum(p.numel() for p in model.parameters())
        assert parameters == record["models"][name]["parameters"]


def test_an_installation_without_the_models_says_what_brings_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bundled, "__file__", str(tmp_path / "bundled.py"))
    monkeypatch.setattr(bundled, "find_spec", lambda _: None)
    with pytest.raises(UnavailableError, match=r"pip install 'acceptor\[app\]'$"):
        bundled_pair()
    installed = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(bundled, "find_spec", lambda _: installed)
    (tmp_path / "target").mkdir()
    assert bundled_pair() == (tmp_path / "target", tmp_path / "draft")


def test_both_share_one_tokenizer_that_keeps_every_byte() -> None:
    target, draft = bundled_pair()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (target / name).read_bytes() == (draft / name).read_bytes()
    tokenizer = AutoTokenizer.from_pretrained(target)
    text = "Où est-il?\r\n\tà 北京 🦉  \x00 end"
    assert tokenizer.decode(tokenizer(text).input_ids[1:]) == text
    assert tokenizer("").input_ids == [tokenizer.bos_token_id] == [tokenizer.eos_token_id] == [0]


def test_the_pair_fits_in_sixteen_megabytes_and_the_head_in_two() -> None:
    *pair, head = (*bundled_pair(), bundled_head())
    assert sum(map(_num_bytes, pair)) <= 16_000_000
    assert _num_bytes(head) <= 2_000_000


def _num_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_head_drafts_as_its_card_says() -> None:
    card = (bundled_head() / "MODEL_CARD.md").read_text(encoding="utf-8")
    (percent,) = re.findall(r"texts of 120 tokens: (\d+) % of", card)
    three = DecodingConfig(num_spec_tokens=3)
    wired = wire(Config(drafter=DrafterConfig(name="eagle3"), decoding=three))
    texts = [text for _, text in read_questions(BUILT_IN)[::13]]
    requests = [
        ask(*wired.tokenizer.encode(text), seed=seed, max_tokens=40, ignore_eos=True)
        for seed, text in enumerate(texts)
    ]
    results = wired.decoder.generate(requests)
    num_accepted = sum(one.statistics.num_accepted_tokens for one in results)
    num_drafted = sum(one.statistics.num_draft_tokens for one in results)
    assert num_accepted / num_drafted == pytest.approx(int(percent) / 100, abs=0.07)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_draft_agrees_with_the_target_as_recorded(
    models: dict[str, LlamaForCausalLM], record: dict[str, Any], temperature: float
) -> None:
    torch.manual_seed(0)
    rows = write_rows(models["target"], torch.full((8,), temperature), 64)
    measured = measure_agreement(models["target"], models["draft"], rows, temperature)
    recorded = {row["temperature"]: row for row in record["agreement"]}[temperature]
    assert measured["overlap"] == pytest.approx(recorded["overlap"], abs=0.06)
    assert measured["coincidence"] == pytest.approx(recorded["coincidence"], abs=0.1)


def test_the_page_and_the_cards_say_what_the_record_says(record: dict[str, Any]) -> None:
    page = (REPOSITORY / "docs" / "benchmark.md").read_text(encoding="utf-8")
    for row in record["agreement"]:
        figures = (f"{row[name]:.3f}" for name in AGREEMENT)
        assert f"| {row['temperature']} | {' | '.join(figures)} |\n" in page
    for path in bundled_pair():
        card = (path / "MODEL_CARD.md").read_text(encoding="utf-8")
        model = record["models"][path.name]
        assert f"{model['parameters']:,} parameters" in card
        assert f"{model['held_out_nats_per_token']:.3f} nats per token" in card
        assert f"{model['held_out_bits_per_byte']:.3f} bits per byte" in card
        losses = (
            f"{model[f'held_out_{unit}']:.3f}" for unit in ("nats_per_token", "bits_per_byte")
        )
        assert f"| {path.name} | {model['parameters']:,} | {' | '.join(losses)} |\n" in page


MINIATURE = Recipe(
    vocab_size=300,
    context_length=32,
    target=Shape(32, 2, 2, 1, 64),
    draft=Shape(16, 1, 2, 2, 384),
    target_rows_per_step=8,
    target_steps=40,
    target_learning_rate=0.02,
    draft_rows_per_step=8,
    draft_steps=60,
    draft_learning_rate=0.02,
    sampled_rows=8,
    evaluation_rows=4,
    evaluate_every=20,
    average_decay=0.5,
)


def write_text(path: Path, num_paragraphs: int = 900) -> Path:
    draw = random.Random(7)  # noqa: S311 - text, not a secret
    things = ["house", "hill", "wind", "night", "river"]
    paragraphs = (f"The {draw.choice(things)} was old and quiet." for _ in range(num_paragraphs))
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return path


def test_a_run_learns_and_writes_checkpoints_that_transformers_loads(tmp_path: Path) -> None:
    train_pair([write_text(tmp_path / "text.txt")], tmp_path, MINIATURE, torch.device("cpu"))
    torch.use_deterministic_algorithms(mode=False)
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    for name in ("target", "draft"):
        model, info = LlamaForCausalLM.from_pretrained(
            tmp_path / name, dtype="auto", output_loading_info=True
        )
        assert not info["missing_keys"] | info["unexpected_keys"]
        assert model.config.eos_token_id == model.config.bos_token_id == END_OF_TEXT_ID
        assert sum(p.numel() for p in model.parameters()) == record["models"][name]["parameters"]
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / name)
        assert tokenizer.decode(tokenizer("the old house").input_ids[1:]) == "the old house"
        first, *_, last = record["curves"][name]
        assert last["held_out_loss"] < first["held_out_loss"]
    assert last["overlap"] > first["overlap"]
    kept = min(point["held_out_loss"] for point in record["curves"]["target"])
    assert record["models"]["target"]["held_out_nats_per_token"] == pytest.approx(kept)


def test_the_recipe_is_that_of_the_pair_in_the_package(record: dict[str, Any]) -> None:
    mine = asdict(Recipe())
    assert mine == {name: record["recipe"][name] for name in mine}


def test_the_draft_learns_divergence_first_and_then_variation() -> None:
    shares = [variation_share(step / 12) for step in (1, 4, 5, 6, 12)]
    assert shares == pytest.approx([0, 0, 0.5, 1, 1], abs=1e-9)
