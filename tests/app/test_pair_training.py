"""The training of the bundled pair in miniature: text in, two directories out; and its parts."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import asdict
from transformers import (
    AutoTokenizer,
    LlamaForCausalLM,
)

from lab.pair_text import END_OF_TEXT_ID
from lab.pair_training import (
    Recipe,
    Shape,
    distillation_loss,
    train_pair,
    variation_share,
)

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


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    train_pair([write_text(folder / "text.txt")], folder, MINIATURE, CPU)
    torch.use_deterministic_algorithms(mode=False)
    return folder


@pytest.fixture(scope="module")
def record(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "record.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("name", ["target", "draft"])
def test_a_run_writes_a_checkpoint_that_transformers_loads(
    out: Path, record: dict[str, Any], name: str
) -> None:
    model, info = LlamaForCausalLM.from_pretrained(
        out / name, dtype="auto", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.dtype == torch.bfloat16
    assert model.config.eos_token_id == model.config.bos_token_id == END_OF_TEXT_ID
    assert sum(p.numel() for p in model.parameters()) == record["models"][name]["parameters"]
    tokenizer = AutoTokenizer.from_pretrained(out / name)
    assert tokenizer("the old house").input_ids[0] == tokenizer.bos_token_id == END_OF_TEXT_ID
    assert tokenizer.decode(tokenizer("the old house").input_ids[1:]) == "the old house"


def test_losses_fall_and_the_draft_nears_the_target(record: dict[str, Any]) -> None:
    target, draft = record["curves"]["target"], record["curves"]["draft"]
    assert target[-1]["held_out_loss"] < target[0]["held_out_loss"]
    assert draft[-1]["held_out_loss"] < draft[0]["held_out_loss"]
    assert draft[-1]["overlap"] > draft[0]["overlap"]


def test_the_record_says_what_was_run(record: dict[str, Any]) -> None:
    assert record["recipe"] == asdict(MINIATURE)
    kept = min(point["held_out_loss"] for point in record["curves"]["target"])
    assert record["models"]["target"]["held_out_nats_per_token"] == pytest.approx(kept)
    assert [row["temperature"] for row in record["agreement"]] == [1.0, 0.7]


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
