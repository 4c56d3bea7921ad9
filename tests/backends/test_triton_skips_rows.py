"""Large batches skip rows behind a certain rejection, and nothing of what was skipped is read.

Through Triton's interpreter, in a process of its own: it must be chosen before Triton is imported.
"""

import os
import subprocess
import sys

import pytest

SKIP = """
import sys, torch
from acceptor.backends.reference import ReferenceSampler
from acceptor.backends.triton_backend import TritonSampler
from acceptor.backends.triton_backend import plan
from acceptor.backends.triton_backend.workspace import MIN_FRONT, Layout
from acceptor.core import *

R = 32
plan.SKIPPING_REQS.update(dict.fromkeys(plan.SKIPPING_REQS, R))
K, V = 2, 600
policy, with_draft = {
    "strict": (Strict(), False), "dense": (Probabilistic(), True),
    "one-hot": (Probabilistic(), False)}[sys.argv[2]]
temperatures = {"sampled": (0.8,), "greedy": (0.0,), "mixed": (0.0, 0.8)}[sys.argv[1]]
torch.manual_seed(5)
target = torch.randn(R, K + 1, V)
peaks = torch.randint(V, (R, K + 1, 1))
target.scatter_(2, peaks, 12.0)
drafts = torch.where(torch.rand(R, K) < 0.6, peaks[:, :K, 0], torch.randint(V, (R, K)))
target[0, 1, 5], target[1, 0, 5], drafts[2, 1], drafts[3, 0] = float("nan"), float("inf"), -1, V
draft = target[:, :K] + torch.randn(R, K, V)
draft[4, 0, 9] = float("inf")
batch = VerifyBatch.dense(target_logits=target, draft_token_ids=drafts, positions=torch.arange(R),
    draft_logits=draft if with_draft else None)
params = SamplingTensors.stack([
    SamplingParams(seed=i, temperature=temperatures[i % len(temperatures)]) for i in range(R)])
expected = ReferenceSampler().verify(batch, params, policy)

sampler = TritonSampler()
memory = torch.zeros(sampler.verify_workspace_size(batch, params, policy), dtype=torch.uint8)
workspace = memory.view(torch.float32)
workspace.fill_(float("nan"))
workspace[:MIN_FRONT] = 0
got = sampler.verify(batch, params, policy, workspace=memory)
for name in "token_ids", "num_accepted", "status":
    assert torch.equal(getattr(got, name), getattr(expected, name)), name
assert not workspace[:MIN_FRONT].any(), "what programs told each other is not forgotten"
written = ~workspace[MIN_FRONT:].isnan()
assert 0.1 < written.float().mean() < 0.9, "no row was skipped, or all were"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "case"),
    [
        ("greedy", "strict"),
        ("mixed", "strict"),
        ("mixed", "dense"),
        ("sampled", "one-hot"),
    ],
)
def test_rows_behind_a_rejection_are_skipped(recipe: str, case: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SKIP, recipe, case],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
