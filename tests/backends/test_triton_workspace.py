"""What a Triton call needs: a few numbers per block, and nothing as large as a row."""

import os
import subprocess
import sys

import pytest
import torch

from acceptor.core import (
    Block,
    InvalidInputError,
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)

pytest.importorskip("triton")

from acceptor.backends.triton_backend import TritonSampler
from acceptor.backends.triton_backend.plan import plan_verify
from acceptor.backends.triton_backend.workspace import (
    COUNT_COPIES,
    MAX_CANDIDATES,
    MAX_COPIED_ROWS,
    MIN_FRONT,
)

NUM_REQS, NUM_DRAFTS, VOCAB_SIZE = 3, 2, 5000
NUM_BLOCKS = -(-VOCAB_SIZE // 512)
POLICIES: list[Policy] = [Strict(), Probabilistic(), Block()]


def batch() -> VerifyBatch:
    target_logits = torch.zeros(NUM_REQS, NUM_DRAFTS + 1, VOCAB_SIZE)
    return VerifyBatch.dense(
        target_logits=target_logits,
        draft_token_ids=torch.zeros(NUM_REQS, NUM_DRAFTS, dtype=torch.int64),
        positions=torch.zeros(NUM_REQS, dtype=torch.int64),
        draft_logits=target_logits[:, :NUM_DRAFTS].contiguous(),
    )


def params(top_p: float) -> SamplingTensors:
    return SamplingTensors.stack([SamplingParams(seed=1, top_p=top_p, logprobs=1)] * NUM_REQS)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_the_workspace_holds_a_few_numbers_per_block(policy: Policy, top_p: float) -> None:
    size = TritonSampler().verify_workspace_size(batch(), params(top_p), policy)
    num_rows = NUM_REQS * (2 * NUM_DRAFTS + 1)
    per_row = 7 * NUM_BLOCKS + 16
    counts = 0
    if top_p < 1:
        per_row += MAX_CANDIDATES + 8
        counts = min(num_rows, MAX_COPIED_ROWS) * COUNT_COPIES * MAX_CANDIDATES
    assert size <= 4 * (MIN_FRONT + num_rows * per_row + counts)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_every_word_of_it_belongs_to_one_part(policy: Policy, top_p: float) -> None:
    wishes = params(top_p)
    layout = plan_verify(batch(), wishes, policy).layout
    places = [*range(layout.front_size)]
    for first, size in layout.parts.values():
        if first >= layout.front_size:
            places += range(first, first + size)
        else:
            assert first + size <= layout.front_size
    assert 4 * len(places) == TritonSampler().verify_workspace_size(batch(), wishes, policy)
    assert places == [*range(len(places))]


GUARDED = """
import sys, torch
from acceptor.backends.triton_backend import TritonSampler
from acceptor.core import *

V, GUARD = 600, 64
wishes, *policies = eval(sys.argv[1])
logits = torch.randn(1, 2, V).bfloat16()
batch = VerifyBatch.dense(target_logits=logits, positions=torch.arange(1),
    draft_token_ids=torch.tensor([[7]]), draft_logits=logits[:, :1].contiguous())
params = SamplingTensors.stack([SamplingParams(seed=3, temperature=0.8, **wishes)])
sampler = TritonSampler()
for policy in policies:
    size = sampler.verify_workspace_size(batch, params, policy)
    memory = torch.full([size + 2 * GUARD], 7, dtype=torch.uint8)
    workspace = memory[GUARD : GUARD + size].zero_()
    sampler.verify(batch, params, policy, workspace=workspace)
    assert workspace.any(), "it works in there"
    assert (memory[:GUARD] == 7).all() and (memory[-GUARD:] == 7).all()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "calls",
    ["dict(), Strict(), Block(), Typical()", "dict(top_p=0.9, logprobs=2), Probabilistic()"],
    ids=["plain", "filtered"],
)
def test_nothing_is_written_outside_of_it(calls: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GUARDED, calls],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]


def test_a_short_workspace_is_refused_before_anything_is_launched() -> None:
    launched: list[object] = []
    sampler = TritonSampler(launch=lambda *args, **_: launched.append(args), overlap=False)
    size = sampler.verify_workspace_size(batch(), params(0.9), Strict())
    workspace = torch.zeros(size - 1, dtype=torch.uint8)
    with pytest.raises(
        InvalidInputError, match=rf"workspace.shape\[0\]: expected a number in \[{size}, "
    ):
        sampler.verify(batch(), params(0.9), Strict(), workspace=workspace)
    assert not launched


@pytest.mark.parametrize(
    ("policy", "top_p", "num_launches"),
    [
        (Strict(), 1.0, 2),
        (Probabilistic(), 1.0, 2),
        (Block(), 1.0, 3),
        (Block(), 0.9, 5),
    ],
)
def test_verification_takes_few_launches(policy: Policy, top_p: float, num_launches: int) -> None:
    launched: list[object] = []
    sampler = TritonSampler(launch=lambda *args, **_: launched.append(args), overlap=False)
    plain = SamplingTensors.stack([SamplingParams(seed=1, top_p=top_p)] * NUM_REQS)
    sampler.verify(batch(), plain, policy)
    assert len(launched) == num_launches
