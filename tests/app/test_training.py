"""The training script in miniature: text in, two directories out; and its parts by themselves."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import asdict
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import (
    AutoTokenizer,
    LlamaForCausalLM,
)

from acceptor.app.training.__main__ import main
from acceptor.app.training.data import encode, read_source
from acceptor.app.training.distill import distillation_loss, sample_pools, variation_share
from acceptor.app.training.measure import bits_per_byte, held_out_loss
from acceptor.app.training.models import as_shipped, build_model, compile_layers, teacher_of
from acceptor.app.training.pace import Budget
from acceptor.app.training.recipe import RECIPES, Recipe, with_settings
from acceptor.app.training.tokenizer import END_OF_TEXT_ID, train_tokenizer
from acceptor.core.errors import ConfigError, InvalidInputError

MINIATURE = {
    "vocab_size": 300,
    "context_length": 32,
    "target.hidden_size": 32,
    "target.num_layers": 2,
    "target.num_heads": 2,
    "target.num_kv_heads": 1,
    "target.intermediate_size": 64,
    "target_rows_per_step": 8,
    "target_steps": 40,
    "target_learning_rate": 0.02,
    "draft.hidden_size": 16,
    "draft.num_heads": 2,
    "draft_rows_per_step": 8,
    "draft_steps": 60,
    "draft_learning_rate": 0.02,
    "sampled_rows": 8,
    "evaluation_rows": 4,
    "evaluate_every": 20,
    "average_decay": 0.5,
}


def write_text(path: Path, num_paragraphs: int = 900) -> Path:
    draw = random.Random(7)  # noqa: S311 - text, not a secret
    things = ["house", "hill", "wind", "night", "river"]
    paragraphs = (f"The {draw.choice(things)} was old and quiet." for _ in range(num_paragraphs))
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    text = write_text(folder / "text.txt")
    changes = [f"--set={name}={value}" for name, value in MINIATURE.items()]
    result = run("--text", str(text), "--out", str(folder / "out"), *changes)
    assert result.exit_code == 0, result.output
    return folder / "out"


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
    assert tokenizer.decode(tokenizer("the old house").input_ids[1:]) == "the old house"


def test_losses_fall_and_the_draft_nears_the_target(record: dict[str, Any]) -> None:
    target, draft = record["curves"]["target"], record["curves"]["draft"]
    assert target[-1]["held_out_loss"] < target[0]["held_out_loss"]
    assert draft[-1]["held_out_loss"] < draft[0]["held_out_loss"]
    assert draft[-1]["overlap"] > draft[0]["overlap"]


def test_the_record_says_what_was_run(record: dict[str, Any]) -> None:
    changed = with_settings(Recipe(), [f"{name}={value}" for name, value in MINIATURE.items()])
    assert record["recipe"] == asdict(changed)
    assert record["sources"][0]["held_out_sections"] > 0
    kept = min(point["held_out_loss"] for point in record["curves"]["target"])
    assert record["models"]["target"]["held_out_nats_per_token"] == pytest.approx(kept)
    assert [row["temperature"] for row in record["agreement"]] == [1.0, 0.7]


def test_the_curves_are_drawn(out: Path) -> None:
    assert "</svg>" in (out / "losses.svg").read_text(encoding="utf-8")


def test_a_run_within_a_time_writes_the_same(tmp_path: Path) -> None:
    endless = {"target_steps": 10**9, "draft_steps": 10**9, "sampled_rows": 10**6}
    changes = MINIATURE | endless | {"sampled_at_once": 8}
    settings = [f"--set={name}={value}" for name, value in changes.items()]
    text = write_text(tmp_path / "text.txt")
    result = run("--text", str(text), "--out", str(tmp_path), "--seconds", "2", *settings)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert record["seconds_limit"] == 2
    for name in ("target", "draft"):
        assert f"{name}: step {record['curves'][name][-1]['step']} of" in result.output
        model = LlamaForCausalLM.from_pretrained(tmp_path / name)
        assert sum(p.numel() for p in model.parameters()) == record["models"][name]["parameters"]


# Of torch, about itself, as it loads its compiler.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_copy_of_a_model_with_compiled_layers_has_none() -> None:
    recipe = with_settings(Recipe(), [f"{name}={value}" for name, value in MINIATURE.items()])
    model = build_model(recipe.target, recipe, torch.device("cpu"))
    assert teacher_of(model) is model
    compile_layers(model)
    copy = as_shipped(model)
    for layer, its_copy in zip(model.model.layers, copy.model.layers, strict=True):
        assert layer._compiled_call_impl is not None
        assert its_copy._compiled_call_impl is None


def test_more_rows_are_written_at_once_than_a_row_is_long() -> None:
    changes = MINIATURE | {"context_length": 8, "sampled_rows": 16}
    recipe = with_settings(Recipe(), [f"{name}={value}" for name, value in changes.items()])
    target = build_model(recipe.target, recipe, torch.device("cpu"))
    warm, cool = sample_pools(target, recipe, torch.device("cpu"), Budget())
    assert [len(pool.unseen) for pool in (warm, cool)] == [4, 4]
    assert (len(warm.seen), len(cool.seen)) == (16, 4)
    rows = torch.cat([warm.seen, warm.unseen, cool.seen, cool.unseen])
    assert rows.shape[1] == 8
    assert (rows[:, 0] == END_OF_TEXT_ID).all()
    assert len(rows.unique(dim=0)) == len(rows)


def test_every_recipe_is_a_shape_that_can_be_built() -> None:
    for recipe in RECIPES.values():
        for shape in (recipe.target, recipe.draft):
            assert shape.hidden_size % (2 * shape.num_heads) == 0
            assert shape.num_heads % shape.num_kv_heads == 0


def test_the_split_is_fixed_whole_and_without_overlap(tmp_path: Path) -> None:
    path = write_text(tmp_path / "text.txt", 5000)
    source = read_source(path)
    assert source == read_source(path)
    assert set(source.training).isdisjoint(source.held_out)
    assert all(section.endswith(".\n\n") for section in source.training + source.held_out)
    kept = sum(map(len, source.training + source.held_out))
    assert kept == pytest.approx(len(path.read_text(encoding="utf-8")), abs=2)


def test_lists_of_numbers_are_left_out_and_wrapped_lines_joined(tmp_path: Path) -> None:
    wrapped = (
        "It was a line as long as a printer's margin would let it become, and\nthen it went on."
    )
    parts = [wrapped, "Apples, 12, 14, 391\n\nPears, 7, 8", "Short\nlines stay."]
    path = tmp_path / "text.txt"
    path.write_text("\n\n\n\n".join(parts), encoding="utf-8")
    source = read_source(path)
    assert source.training == (wrapped.replace("\n", " ") + "\n\n",)
    assert source.held_out == ("Short\nlines stay.\n\n",)


def test_a_source_that_cannot_be_split_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("One paragraph.", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"short\.txt: expected two sections or more"):
        read_source(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match=r"short\.txt: expected UTF-8"):
        read_source(path)
    result = run("--text", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


@pytest.mark.parametrize(
    "setting", ["nonsense=1", "target=3", "target.depth=3", "dropout", "target_steps=many"]
)
def test_an_unknown_or_malformed_setting_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"--set {setting}: expected"):
        with_settings(Recipe(), [setting])


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_named(tmp_path: Path, device: str) -> None:
    text = write_text(tmp_path / "text.txt")
    result = run("--text", str(text), "--out", str(tmp_path / "out"), "--device", device)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: --device {device}: expected")


def test_covering_rows_hold_each_token_once() -> None:
    tokenizer = small_tokenizer()
    stream = encode(tokenizer, ["the old house\n\n", "the wind\n\n"], 4, torch.device("cpu"))
    rows = stream.covering_rows(5)
    assert (rows[:, 0] == END_OF_TEXT_ID).all()
    tokens = rows[:, 1:].flatten()
    assert tokens[tokens >= 0].equal(stream.tokens)
    assert stream.tokens.tolist().count(END_OF_TEXT_ID) == 2


def test_rows_begin_where_a_paragraph_begins() -> None:
    paragraphs = ["the old house\n\n", "and the wind\n\n"]
    stream = encode(small_tokenizer(), ["".join(paragraphs) * 20], 64, torch.device("cpu"))
    rows = stream.rows(16, 12, torch.Generator().manual_seed(0))
    for row in rows.tolist():
        text = small_tokenizer().decode(row[1:])
        assert text.startswith(("the old house", "and the wind"))


def test_a_uniform_model_loses_log_vocabulary_size() -> None:
    class Uniform(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
            assert not use_cache
            return type("Output", (), {"logits": torch.zeros(*input_ids.shape, 256)})

    rows = torch.tensor([[0, 5, 6, 7], [0, 8, -1, -1]])
    loss = held_out_loss(Uniform(), rows)
    assert loss == pytest.approx(torch.tensor(256.0).log().item())
    assert bits_per_byte(loss, num_tokens=4, num_bytes=4) == pytest.approx(8)


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


def small_tokenizer() -> Tokenizer:
    return train_tokenizer(["the old house and the wind\n\n" * 9], 300)


@settings(deadline=None, max_examples=50)
@given(st.text())
def test_the_tokenizer_keeps_any_text(text: str) -> None:
    tokenizer = small_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
