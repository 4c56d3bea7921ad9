"""A pair that is trained within a time and then measured: from text files to a page."""

import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from acceptor.app.bench import document
from acceptor.app.bench.sweep import Load
from acceptor.app.training.__main__ import main as train

pytestmark = pytest.mark.slow
MINIATURE = {
    "vocab_size": 300,
    "context_length": 128,
    "target.hidden_size": 32,
    "target.num_layers": 2,
    "target.num_heads": 2,
    "target.num_kv_heads": 1,
    "target.intermediate_size": 64,
    "target_rows_per_step": 4,
    "draft.hidden_size": 16,
    "draft.num_heads": 2,
    "draft.num_kv_heads": 1,
    "draft.intermediate_size": 32,
    "draft_rows_per_step": 4,
    "sampled_rows": 4,
    "sampled_at_once": 1,
    "evaluation_rows": 1,
}


def write_text(path: Path) -> Path:
    draw = random.Random(7)  # noqa: S311 - text, not a secret
    things = ["house", "hill", "wind", "night", "river"]
    paragraphs = [f"The {draw.choice(things)} was old and quiet." for _ in range(900)]
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return path


def run(command: object, *arguments: object) -> None:
    result = CliRunner().invoke(command, [str(one) for one in arguments])  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output


def test_two_commands_make_a_page_of_a_larger_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, docs = tmp_path / "pair", tmp_path / "docs"
    settings = [f"--set={name}={value}" for name, value in MINIATURE.items()]
    text = write_text(tmp_path / "text.txt")
    run(train, "--recipe", "large", "--seconds", 1, "--text", text, "--out", pair, *settings)

    load = Load(num_requests=2, max_concurrency=2, output_len=8, warm_up=0, ignore_eos=True)
    monkeypatch.setattr(document, "LOSSLESS", ("strict", "probabilistic"))
    monkeypatch.setattr(document, "SET_RATES", (0.6,))
    monkeypatch.setattr(document, "SYNTHETIC_LOAD", load)
    monkeypatch.setattr(document, "TIMED_STEPS", 10)
    models = ("--target", pair / "target", "--draft", pair / "draft", "--name", "miniature")
    amount = ("--num-requests", 2, "--output-len", 8, "--max-concurrency", 2, "--k", 1)
    files = ("--record", pair / "record.json", "--out", docs / "data")
    run(document.main, *models, *amount, *files)

    page = (docs / "benchmark-miniature.md").read_text(encoding="utf-8")
    assert "It was trained on" in page
    assert "text.txt" in page
    wanted = re.findall(r"(?:include\} |\]\()((?:data|figures)/[^\s)]+)", page)
    assert len(wanted) == 9
    assert all((docs / file).stat().st_size for file in wanted)
    before = page
    (docs / "benchmark-miniature.md").unlink()
    run(document.main, "--read", "--name", "miniature", "--out", docs / "data")
    assert (docs / "benchmark-miniature.md").read_text(encoding="utf-8") == before
