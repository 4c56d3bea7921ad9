"""The training of the bundled pair in miniature: text in, two directories out; and its parts."""

import json
import random
from pathlib import Path

import pytest
import torch
from attrs import asdict
from transformers import (
    AutoTokenizer,
    LlamaForCausalLM,
)

from lab.pair_learner import Recipe, Shape
from lab.pair_text import END_OF_TEXT_ID
from lab.pair_training import distillation_loss, train_pair, variation_share

CPU = torch.device("cpu")
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
    train_pair([write_text(tmp_path / "text.txt")], tmp_path, MINIATURE, CPU)
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


def test_the_recipe_is_that_of_the_pair_in_the_package() -> None:
    shipped = Path(__file__).parents[2] / "app" / "models" / "record.json"
    recipe = json.loads(shipped.read_text(encoding="utf-8"))["recipe"]
    mine = asdict(Recipe())
    assert mine == {name: recipe[name] for name in mine}


def test_the_distillation_loss_is_least_at_the_target() -> None:
    torch.manual_seed(0)
    target, other = torch.randn(2, 2, 3, 7)
    temperatures = torch.tensor([1.0, 0.7])
    for share in (0.0, 0.5, 1.0):
        best = distillation_loss(target, target, temperatures, share)
        assert best < distillation_loss(target, other, temperatures, share)
    assert distillation_loss(target, target, temperatures, 1.0) == pytest.approx(0, abs=1e-6)
    shares = [variation_share(step / 12) for step in (1, 4, 5, 6, 12)]
    assert shares == pytest.approx([0, 0, 0.5, 1, 1], abs=1e-9)
