"""Triton's kernels compile for common GPUs, and are correct in the interpreter."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.interpreted import compile_for, interpret

pytest.importorskip("triton")

BEGIN = """
import importlib, itertools, pkgutil, torch
from triton import JITFunction
from acceptor.backends import triton_backend
from acceptor.core import *

def batch(dtype, V=1000, **settings):
    return VerifyBatch.dense(
        target_logits=torch.zeros(2, 4, V, dtype=dtype),
        draft_token_ids=torch.zeros(2, 3, dtype=int),
        positions=torch.zeros(2, dtype=int), **settings)

def verify(policy, batch, *recipes):
    params = SamplingTensors.stack([SamplingParams(seed=1, **recipe) for recipe in recipes])
    sampler.verify(batch, params, policy)

sampled, greedy = dict(temperature=0.8), dict(temperature=0.0)
drafts = dict(draft_logits=torch.zeros(2, 3, 1000, dtype=torch.bfloat16))
"""

EVERY_KERNEL = """
compiled = set()

def compile_only(kernel, grid, call, rest, stage, **options):
    assert kernel.warmup(call, rest, stage, grid=grid, **options).asm["cubin"]
    compiled.add(stage.__name__)

sampler = triton_backend.TritonSampler(launch=compile_only)
full = dict(top_k=5, top_p=0.9, min_p=0.1, logit_bias={1: 2.0}, presence_penalty=0.5, logprobs=2)
mapped = dict(draft_logits=torch.zeros(2, 3, 50, dtype=torch.float16), slot_ids=torch.arange(2),
    draft_to_target=torch.arange(50), token_counts=TokenCounts.empty(2, 999),
    allowed_tokens=torch.zeros(1, 32, dtype=torch.int32), allowed_rows=torch.zeros(8, dtype=int))

verify(Probabilistic(), batch(torch.bfloat16, **drafts), sampled, sampled)
verify(Block(), batch(torch.float32, 999, **mapped), full, greedy)
verify(Strict(), batch(torch.float16), dict(sampled, top_k=5), greedy)
verify(Synthetic((0.9, 0.5)), batch(torch.float32), sampled, greedy)
for lossy in Typical(), RelaxedTopN(), Fly():
    verify(lossy, batch(torch.bfloat16, **drafts), sampled, greedy)
params = SamplingTensors.stack([SamplingParams(seed=1)] * 2)
positions = torch.zeros(2, dtype=int)
sampler.sample(SampleBatch(logits=torch.zeros(2, 50), positions=positions, draft_index=1,
    draft_to_target=torch.arange(50), target_vocab_size=99), params)

stages = {
    value.__name__
    for module in pkgutil.walk_packages(triton_backend.__path__, triton_backend.__name__ + ".")
    for value in vars(importlib.import_module(module.name)).values()
    if isinstance(value, JITFunction) and value.__name__.endswith("_stage")
}
assert compiled == stages, compiled ^ stages
"""


OVERLAPPING_KERNELS = """
waits = {}

def compile_and_look(kernel, grid, call, rest, stage, **options):
    text = kernel.warmup(call, rest, stage, grid=grid, **options).asm["ptx"]
    waits[stage.__name__] = [f"griddepcontrol.{word}" in text for word in ("launch", "wait")]

sampler = triton_backend.TritonSampler(launch=compile_and_look)
verify(Probabilistic(), batch(torch.bfloat16, **drafts), sampled, sampled)
verify(Block(), batch(torch.bfloat16, **drafts), dict(sampled, top_p=0.9), sampled)
assert waits == {
    "statistics_stage": [True, False], **dict.fromkeys(
        ("thresholds_stage", "counts_stage", "decide_stage", "block_stage"), [True, True])}, waits
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "calls"),
    # An H200 compiles for 9.0 in its own suite, so that what is newer must only overlap as there.
    [("80", EVERY_KERNEL), ("100", OVERLAPPING_KERNELS)],
    ids=["80", "100"],
)
def test_kernels_compile_for(capability: str, calls: str, tmp_path: Path) -> None:
    compile_for(capability, BEGIN + calls, tmp_path)


ROOT = Path(__file__).parents[2]
SOURCES = [
    *(ROOT / "backends" / "triton_backend").rglob("*.py"),
    *(ROOT / "adapters" / "few_tokens").glob("*.py"),
]


def copies(tree: ast.AST) -> Iterator[ast.Assign]:
    """Each `a = b`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Name):
            yield node


def names_of(copy: ast.Assign) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(copy) if isinstance(node, ast.Name))


def lost_names(source: str) -> set[frozenset[str]]:
    """Names of one tensor before a loop that are copied inside it."""
    lost = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            loops = [node for node in ast.walk(function) if isinstance(node, ast.While | ast.For)]
            inside = {copy for loop in loops for copy in copies(loop)}
            before = {names_of(copy) for copy in copies(function) if copy not in inside}
            lost |= before & {names_of(copy) for copy in inside}
    return lost


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_name_is_lost_in_a_loop(path: Path) -> None:
    assert lost_names(path.read_text(encoding="utf-8")) == set()


def test_a_lost_name_is_found() -> None:
    source = "def f(x):\n  b = x * 0\n  a = b\n  while a < x:\n    b = a\n    a += 1\n  return b\n"
    assert lost_names(source) == {frozenset("ab")}


@pytest.mark.slow
@pytest.mark.parametrize("check", ["thresholds", "touched", "policies", "shards", "launches"])
def test_the_interpreted_kernels_are_right_about(check: str) -> None:
    interpret("kit.triton_on_host", check)


def test_the_assembly_does_what_the_interpreter_does_without_it() -> None:
    interpret("kit.triton_assembly")


@pytest.mark.slow
def test_the_interpreted_kernels_conform() -> None:
    few = ["--max-vocab-size", "40", "--batches", "3", "--chunk", "1"]
    interpret("acceptor.backends.conformance", "--backend", "triton", "--device", "cpu", *few)
