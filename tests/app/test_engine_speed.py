"""What the engine's measurements rest on: the same weights elsewhere, and tables that add up."""

import json
import re
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from click.testing import CliRunner, Result

from acceptor.adapters.spans import Spans
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.speed import __main__ as command
from acceptor.app.engine.speed import hugging_face, milestones, operations, served, shapes, timing
from acceptor.app.engine.speed.operations import products
from acceptor.app.engine.speed.table import as_markdown, share_of_bandwidth
from acceptor.backends import load_sampler
from acceptor.core import Synthetic

SMALL = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize("shape", [shapes.TARGET, shapes.DRAFT], ids=["target", "draft"])
def test_hugging_face_gets_the_same_weights(shape: dict[str, Any]) -> None:
    shape = shape | SMALL
    theirs, ours = hugging_face.load_copy(shape, 3, "cpu"), shapes.make_model(shape, 3, "cpu")
    token_ids, positions = torch.randint(199, (1, 12)), torch.arange(12)[None]
    with torch.inference_mode():
        expected = theirs(token_ids).logits.float()
        cache = ours.new_cache(1, 12)
        got = ours.forward(token_ids, positions, cache, torch.tensor([0])).float()
    assert (got - expected).abs().max() < 0.02 * expected.abs().max()


def test_assisted_generation_accepts_every_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    target = hugging_face.load_copy(shapes.TARGET | SMALL, 0, "cpu")
    draft = hugging_face.load_copy(shapes.DRAFT | SMALL, 1, "cpu")
    num_forwards = [0]
    forward = target.forward

    def counting(*args: Any, **kwargs: Any) -> Any:
        num_forwards[0] += 1
        return forward(*args, **kwargs)

    monkeypatch.setattr(target, "forward", counting)
    prompt = torch.randint(199, (1, 5))
    assert hugging_face.tokens_per_second(target, draft, prompt, 3) > 0
    assert num_forwards[0] == (8 + hugging_face.NUM_TOKENS) / 4


def test_a_forward_reads_fifteen_gigabytes() -> None:
    *layer, head = (rows * columns for rows, columns in products(shapes.TARGET).values())
    parameters = 32 * sum(layer) + head
    embedding, norms = head, 65 * 4096
    # Meta says 8.03 billion.
    assert parameters + embedding + norms == 8_030_261_248


RECORD = {
    "date": "2000-01-01",
    "device": "A GPU",
    "torch": "1",
    "backend": "triton",
    "bandwidth": 4e12,
    "weight_bytes": {"target": 8e9, "draft": 4e9},
    "rows": [
        {
            "concurrency": 1,
            "num_spec_tokens": k,
            "tokens_per_second": speed,
            "step_ms": 10.0,
            "tokens_per_step": 1.5,
            "num_steps": 77,
            "parts_ms": {"draft": 4.0, "target": 5.0, "verification": 0.1, "host": 0.9},
        }
        for k, speed in ((3, 300.0), (0, 100.0))
    ],
    "products": [{"model": "target", "product": "qkv", "tokens": 1, "us": 10.0, "bytes": 2e7}],
    "attention": [{"model": "draft", "requests": 1, "queries": 4, "positions": 9, "us": 3.25}],
    "hugging_face": {"plain": 20.0, "assisted": 30.0},
}


def test_the_tables_say_what_was_recorded() -> None:
    text = as_markdown(RECORD)
    assert "| 1 | 3 | 300 | 77 | 1.50 | 10.00 | 4.00 | 5.00 | 0.100 (1.0%) | 0.90 | 50% |" in text
    assert share_of_bandwidth(RECORD, RECORD["rows"][1]) == pytest.approx(0.2)  # type: ignore[index]
    ratios = re.findall(r"\| ([\w ,]+) \| \d+ \| ([\d.]+) × \|", text)
    assert ratios == [
        ("this engine, plain", "3.00"),
        ("Hugging Face, plain", "15.00"),
        ("Hugging Face, assisted", "10.00"),
    ]
    assert "| target, qkv | 10.0 (50%) |" in text
    assert "| draft | 1 | 4 | 9 | 3.2 | – | – |" in text
    assert "A GPU" in text


def test_what_a_broken_off_run_leaves_can_be_shown() -> None:
    text = as_markdown(RECORD | {"rows": RECORD["rows"][:1], "hugging_face": {}})  # type: ignore[index]
    assert "300" in text
    assert "×" not in text


def show_again(folder: Path, machine: str, bandwidth: float) -> tuple[Result, Path]:
    record, kernels = folder / "record.json", folder / "kernels.json"
    record.write_text(json.dumps(RECORD | {"machine": {"device": "abc"}}), encoding="utf-8")
    beside = {"machine": {"device": machine}, "bandwidth": bandwidth}
    kernels.write_text(json.dumps(beside), encoding="utf-8")
    arguments = ["--read", str(record), "--kernels", str(kernels), "--out", str(folder / "out")]
    return CliRunner().invoke(command.main, arguments), folder / "out" / "engine.md"


@pytest.mark.parametrize(("bandwidth", "share"), [(5e12, "40%"), (3e12, "50%")])
def test_the_better_of_two_readings_of_memory_counts(
    tmp_path: Path, bandwidth: float, share: str
) -> None:
    result, page = show_again(tmp_path, "abc", bandwidth)
    assert result.exit_code == 0, result.output
    assert f"| 0.90 | {share} |" in page.read_text(encoding="utf-8")


def test_what_another_machine_read_does_not_count(tmp_path: Path) -> None:
    result, page = show_again(tmp_path, "other", 5e12)
    assert result.exit_code == 2
    assert "expected the machine of" in result.output
    assert not page.exists()


def rehearse(out: Path, *options: str) -> Result:
    return CliRunner().invoke(
        command.main, ["--rehearse", "--backend", "reference", "--out", str(out), *options]
    )


def test_bandwidth_is_the_best_of_copying_and_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([4.0, 1.0])
    monkeypatch.setattr(timing, "milliseconds", lambda *_: next(found))
    # Copied within 4 ms, that is read and written; read within 1 ms.
    assert timing.bandwidth(torch.device("cpu"), 1) == 2**20 / 0.001


PARTS = [one.name for one in milestones.milestones(3, hugging_face=True)]


@pytest.mark.slow
def test_a_rehearsal_reaches_every_part(tmp_path: Path) -> None:
    result = rehearse(tmp_path)
    assert result.exit_code == 0, result.output
    assert [line.partition(", ")[0] for line in PARTS] == [
        line.partition(", ")[0] for line in result.output.splitlines()[: len(PARTS)]
    ]
    record = json.loads((tmp_path / "engine.json").read_text())
    kinds = [(row["concurrency"], row["num_spec_tokens"]) for row in record["rows"]]
    assert kinds == [(1, 3), (1, 0), (3, 3), (3, 0)]
    for row in record["rows"]:
        assert row["parts_ms"].keys() == {"draft", "target", "verification", "host"}
        assert row["num_steps"] >= (shapes.REHEARSAL.steps_of_one if row["concurrency"] == 1 else 2)
    assert record["hugging_face"].keys() == {"plain", "assisted"}
    assert record["missing"] == {}
    assert (tmp_path / "engine.md").read_text() == as_markdown(record)


def test_a_part_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no kernel\nimage")

    written: list[Any] = []

    def serve(subject: Any, record: dict[str, Any]) -> object:  # noqa: ARG001, as its siblings
        record.setdefault("rows", []).append(RECORD["rows"][0])  # type: ignore[index]
        return "served"

    def look(subject: Any, record: dict[str, Any]) -> object:  # noqa: ARG001, as its siblings
        written.append(json.loads((tmp_path / "engine.json").read_text()))
        return "looked"

    parts = [
        milestones.Milestone("broken", fail),
        milestones.Milestone("one request", serve),
        milestones.Milestone("last", look),
    ]
    monkeypatch.setattr(command, "milestones", lambda *_, **__: parts)
    result = rehearse(tmp_path)
    assert result.exit_code == 1
    assert "- Not measured: broken (RuntimeError: no kernel)." in result.output
    # What was measured has been written by the time the next part begins.
    assert [len(record["rows"]) for record in written] == [1]


def test_nothing_begins_when_no_time_is_left(tmp_path: Path) -> None:
    result = rehearse(tmp_path, "--seconds", "-1")
    assert result.exit_code == 1
    assert result.output.count("no time left") == 2 * len(PARTS)
    # The figures of an earlier run stay.
    assert not list(tmp_path.iterdir())


def test_a_rehearsal_leaves_the_figures_alone() -> None:
    result = CliRunner().invoke(command.main, ["--rehearse"])
    assert result.exit_code == 2
    assert "--rehearse: expected an --out" in result.output


# Uncompiled it computes all scores, and says so.
@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
def test_attention_is_timed_at_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spans, "attend", lambda spans, queries, *_: queries.flatten(1))  # noqa: ARG005
    rows = operations.time_attention(shapes.REHEARSAL, torch.device("cpu"))
    assert len(rows) == 8
    assert all(row["us"] > 0 for row in rows)
    assert [row.get("together_us", 0) > 0 for row in rows] == [row["queries"] > 1 for row in rows]
    record: dict[str, Any] = {"attention": rows[:1]}
    subject = milestones.Subject(
        sizes=shapes.REHEARSAL, device=torch.device("cpu"), backend="reference", deadline=0
    )
    milestones._flex_attention(subject, record)
    assert record["attention"][0]["flex_us"] > 0


def test_no_graph_is_recorded_while_time_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, load = small_engine(output_len=9, num_steps=30)
    runner = engine.loop.runner
    assert isinstance(runner, GraphRunner)
    known = list[int]()
    run_often = served._run_often

    def counting(*args: Any) -> Any:
        known.append(len(runner.captured))
        return run_often(*args)

    monkeypatch.setattr(served, "_run_often", counting)
    found = served.serve(engine, load)
    assert known == [len(runner.captured)]
    assert {len(one.drafts) for one in runner.captured.values()} == {0, 1, 2, 3}
    assert found.num_steps >= 30


def small_engine(output_len: int, num_steps: int) -> tuple[Engine, served.Load]:
    sizes = evolve(shapes.REHEARSAL, output_len=output_len)
    load = served.Load(sizes=sizes, concurrency=1, num_steps=num_steps, deadline=inf)
    target, draft = (shapes.make_model(shape, 0, "cpu") for _, shape in sizes.shapes)
    policy = Synthetic.from_acceptance_rate(0.6, 3)
    return served.make_engine(target, draft, load_sampler("reference"), policy, 3, load), load
