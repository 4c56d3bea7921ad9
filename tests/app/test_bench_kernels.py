"""The benchmark of kernels, as far as a CPU can run it: inputs, statistics, tables, the command."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import asdict, evolve
from click.testing import CliRunner, Result

from acceptor.app.bench.command import kernels
from acceptor.app.bench.files import make_room, read_record
from acceptor.app.bench.kernels.inputs import MIXED, Logits, draw_drafts, make_step
from acceptor.app.bench.kernels.measure import KernelBench
from acceptor.app.bench.kernels.table import NOT_AVAILABLE, markdown
from acceptor.app.bench.kernels.workload import INPUTS, Run, Workload
from acceptor.backends import load_sampler
from acceptor.core import Probabilistic, Recipe, SamplingParams, SamplingTensors
from acceptor.core.allowed_tokens import unpack_allowed

SAMPLED = Recipe(temperature=0.8)
GREEDY = Recipe(temperature=0)


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_every_kind_of_rows_is_what_it_says() -> None:
    one = Workload(num_reqs=2, num_spec_tokens=2, vocab_size=20_000, dtype="float32")
    drawn = {kind: Logits.random(evolve(one, inputs=kind), noise()) for kind in INPUTS}
    rows = {kind: logits.target.flatten(0, 1) for kind, logits in drawn.items()}
    assert float(rows["flat"].std()) == pytest.approx(1, abs=0.02)
    assert torch.equal(rows["ties"], rows["ties"].round())
    assert float(rows["ties"].std()) == pytest.approx(2, abs=0.05)
    assert (rows["sharp"].topk(2).values.diff() < -30).all()
    assert ((rows["lm"] > 12).sum(-1) < 20).all()
    # Noise moves all ranks of a power law by the same factor.
    mean = rows["zipf"].sort(descending=True).values.mean(0)
    assert float(mean[99] - mean[9_999]) == pytest.approx(1.1 * math.log(100), abs=0.6)
    assert (rows["zipf"].argmax(-1) < 100).sum() < 6
    assert [float(row.amax()) for row in rows["bad"][1:4]] == [math.inf, -math.inf, 0]
    assert rows["bad"][::4].isnan().all()


def test_mixed_rows_are_of_another_kind_each_and_so_are_their_drafts() -> None:
    logits = Logits.random(Workload(num_reqs=5, vocab_size=3000, inputs="mixed"), noise())
    for name, rows, last in (("target", logits.target, 20), ("draft", logits.draft, 15)):
        flat = rows.float().flatten(0, 1)
        assert len(flat) == last
        is_round = (flat == flat.round()).all(-1).view(5, -1)
        is_sharp = (flat.topk(2).values.diff() < -30).view(5, -1)
        place = torch.arange(20).view(5, 4)[:, : is_round.shape[1]] % len(MIXED)
        assert torch.equal(is_round, place == MIXED.index("ties")), name
        assert torch.equal(is_sharp, place == MIXED.index("sharp")), name


@pytest.mark.parametrize(
    ("recipe", "law"),
    [
        (Recipe(temperature=0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        (Recipe(temperature=1, top_k=2), [4 / 7, 3 / 7, 0, 0]),
        (GREEDY, [1.0, 0, 0, 0]),
    ],
)
def test_drafts_follow_the_draft_s_law(recipe: Recipe, law: list[float]) -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().expand(2000, 10, 4)
    params = SamplingTensors.stack([SamplingParams(**asdict(recipe), seed=s) for s in range(2000)])
    positions, sampler = torch.zeros(2000, dtype=torch.int64), load_sampler("reference")
    drawn = draw_drafts(logits, positions, params, Probabilistic(), sampler).flatten()
    shares = drawn.bincount(minlength=4) / len(drawn)
    # Five standard errors.
    assert torch.allclose(shares, torch.tensor(law), atol=5 * (0.25 / len(drawn)) ** 0.5)


def test_coupled_drafts_are_accepted_more_often_than_independent_ones() -> None:
    sampler = load_sampler("reference")
    means = []
    for policy in ("strict", "strict-coupled"):
        workload = Workload(num_reqs=40, vocab_size=300, policy=policy)
        step = make_step(workload, Logits.random(workload, noise()), noise(1), sampler)
        means.append(float(sampler.verify(*step).num_accepted.float().mean()))
    assert means[1] > means[0] + 0.3


@pytest.mark.parametrize(
    ("policy", "recipe", "rows"),
    [("block", SAMPLED, 7), ("strict", SAMPLED, 4), ("probabilistic", GREEDY, 4)],
)
def test_the_floor_counts_rows_that_the_rule_needs(policy: str, recipe: Recipe, rows: int) -> None:
    workload = Workload(num_reqs=2, vocab_size=10, policy=policy, recipe=recipe)
    assert workload.num_bytes == 2 * rows * 10 * 2
    assert evolve(workload, dtype="float32").num_bytes == 2 * workload.num_bytes
    # Penalties read five bytes for each token id of each request.
    assert evolve(workload, repetition_penalty=1.1).num_bytes == workload.num_bytes + 2 * 10 * 5
    # A mask has a word for 32 of them.
    assert evolve(workload, allowed=0.5).num_bytes == workload.num_bytes + 2 * 4 * 4


def test_masks_allow_their_share_and_every_draft() -> None:
    workload = Workload(num_reqs=3, vocab_size=4001, allowed=0.25)
    logits, sampler = Logits.random(workload, noise()), load_sampler("reference")
    step = make_step(workload, logits, noise(1), sampler)
    masks = step.batch.allowed_tokens
    assert masks is not None
    allowed = unpack_allowed(masks, None, 0, 12, 4001)
    assert float(allowed.float().mean()) == pytest.approx(0.25, abs=0.02)
    assert allowed.view(3, 4, -1)[:, :-1].gather(2, step.batch.draft_token_ids[..., None]).all()
    applied = make_step(evolve(workload, is_applied=True), logits, noise(1), sampler).batch
    assert applied.allowed_tokens is None
    assert torch.equal(applied.target_logits > -math.inf, allowed)


def bench(*arguments: object) -> Result:
    fixed = ["--device", "cpu", "--count", "2", "--sets", "1"]
    fixed += () if "--headline" in arguments else ("--vocab-size", "600")
    return CliRunner().invoke(kernels, [*fixed, *map(str, arguments)])


def test_half_of_the_biases_are_those_of_the_last_ids() -> None:
    workload = Workload(num_reqs=2, vocab_size=999, num_biases=5)
    logits, sampler = Logits.random(workload, noise()), load_sampler("reference")
    bias = make_step(workload, logits, noise(1), sampler).params.bias
    assert bias is not None
    assert bias.token_ids[:, -3:].tolist() == [[996, 997, 998]] * 2


def test_penalties_count_a_text_of_the_wanted_length() -> None:
    workload = Workload(num_reqs=2, vocab_size=99, repetition_penalty=1.1, num_counted=50)
    logits, sampler = Logits.random(workload, noise()), load_sampler("reference")
    counts = make_step(workload, logits, noise(1), sampler).batch.token_counts
    assert counts is not None
    assert counts.output_counts.sum(1).tolist() == [10, 10]
    assert workload.label.endswith("penalty 1.1, 50 tokens counted")


def test_the_command_measures_writes_and_shows_again(tmp_path: Path) -> None:
    json_file, tables, figure = (tmp_path / f"run.{name}" for name in ("json", "md", "svg"))
    shape = ["--backend", "reference", "--requests", "1,3", "--spec-tokens", "0,2"]
    wanted = ["--policy", "probabilistic", "--policy", "strict-coupled", "--top-k", "20"]
    wanted += ["--allowed", "0.5"]
    files = ["--json", json_file, "--markdown", tables, "--plot", figure]
    result = bench(*shape, *wanted, *files)
    assert result.exit_code == 0, result.output
    written: dict[str, Any] = json.loads(json_file.read_text(encoding="utf-8"))
    cells = [cell for line in written["lines"] for cell in line["cells"]]
    assert len(cells) == 8
    assert all(len(cell["eager"]) == 2 for cell in cells)
    assert all(cell["num_checked"] and not cell["num_different"] for cell in cells)
    label = "strict-coupled, temperature 0.8, top-k 20, 50% allowed, K = 2"
    assert f"{label} |" in tables.read_text()
    head = "**Eager call to its synchronised result, µs at R = 1/3**\n\n|  | reference, eager |\n"
    assert head in tables.read_text()
    drawn = figure.read_text()
    for words in ("strict-coupled,", "K\u00a0=\u00a02", "µs, eager call", "requests"):
        assert words in drawn
    again = CliRunner().invoke(kernels, ["--read", str(json_file), "--markdown", str(tables)])
    assert again.exit_code == 0, again.output


def test_headline_and_worst_table_come_from_one_command(tmp_path: Path) -> None:
    json_file, tables = tmp_path / "run.json", tmp_path / "run.md"
    chosen = ["--headline", "--worst", "--requests", 1, "--inputs", "flat,mixed"]
    files = ["--json", json_file, "--markdown", tables]
    result = bench("--backend", "reference", *chosen, "--only", "greedy", *files)
    assert result.exit_code == 0, result.output
    run = read_record(json_file, Run, "bench kernels")
    assert [line.workload.inputs for line in run.lines] == ["flat", "mixed"]
    assert [line.workload.inputs for line in run.worst] == ["flat"] * 3 + ["mixed"] * 3
    masked, applied = "greedy, 50% allowed", "greedy, 50% at -inf"
    labels = {"greedy, repetition penalty 1.1", masked, applied}
    assert {line.workload.label for line in run.worst} == labels
    cells = [cell for line in (*run.lines, *run.worst) for cell in line.cells]
    assert all(cell.num_checked and not cell.num_different for cell in cells)
    text = tables.read_text()
    assert "| greedy, mixed inputs |" in text
    slowest, _, costs = text.partition("mixed inputs, eager call, µs")[2].partition("**Masked")
    assert len(re.findall(r"\| [\d.]+ (?:flat|mixed) \|$", slowest, re.MULTILINE)) == len(labels)
    assert text == markdown(run)
    assert "8 of 8" in result.output
    times = {line.workload: line.cells[0].time or 0.0 for line in run.worst}
    ratio, inputs = max(
        (time / times[evolve(workload, is_applied=True)], workload.inputs)
        for workload, time in times.items()
        if workload.is_masked
    )
    assert f"| {masked} | {ratio:.2f} {inputs} |" in costs


def test_no_workload_begins_when_time_is_over() -> None:
    result = bench("--backend", "reference", "--requests", "1,2", "--seconds", 1e-9)
    assert result.exit_code == 2
    assert "--seconds: expected time for one workload, got 1e-09" in result.output


def test_a_backend_that_cannot_run_here_costs_its_own_cells_only() -> None:
    result = bench("--backend", "reference", "--backend", "cupy", "--requests", 1)
    assert result.exit_code == 0, result.output
    assert NOT_AVAILABLE in result.output
    assert "Of 1 requests checked, 0 differ" in result.output


@pytest.mark.parametrize("figure", ["/proc/a.svg", "/dev/null/a.svg", "/tmp/figure.unknown"])  # noqa: S108
def test_a_figure_that_cannot_be_drawn_is_told_before_anything_is_measured(
    figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(KernelBench, "run")
    result = bench("--backend", "reference", "--plot", figure)
    assert result.exit_code == 2
    assert f"Error: {figure}: expected " in result.output.splitlines()[-1]


def test_looking_whether_a_file_can_be_written_leaves_none_and_harms_none(tmp_path: Path) -> None:
    new, full, link = tmp_path / "folder" / "new", tmp_path / "full", tmp_path / "link"
    full.write_text("before")
    link.symlink_to(tmp_path / "nowhere")
    make_room(new, full, link, None)
    assert not new.exists()
    assert full.read_text() == "before"
    assert link.is_symlink()
    assert not link.exists()


def test_logits_without_room_say_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise RuntimeError("can't allocate memory: you tried to allocate 16 GiB. Error code 12")

    monkeypatch.setattr(KernelBench, "run", run)
    result = bench("--backend", "reference")
    assert "logits: expected 16 GiB on cpu, got less; lower --requests or" in result.output


@pytest.mark.gpu
def test_the_kernel_of_the_floor_reads_every_word_once() -> None:
    from acceptor.app.bench.kernels.read_once import SHAPES, read_once  # noqa: PLC0415, has Triton

    words = torch.arange(20_001, dtype=torch.int32, device="cuda")
    for shape in SHAPES:
        maxima = [int(part.max()) for part in words.split(shape[0])]
        assert read_once(words, shape)().tolist() == maxima
