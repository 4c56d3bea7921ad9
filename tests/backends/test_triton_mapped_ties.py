"""A greedy draft of a mapped vocabulary is the lowest draft id of those tied, in whatever block.

Through Triton's interpreter, in a process of its own: it must be chosen before Triton is imported.
"""

import os
import subprocess
import sys

TIES = """
import torch
from acceptor.backends.reference import ReferenceSampler
from acceptor.backends.triton_backend import TritonSampler
from acceptor.core import *

R, V = 6, 1500
noise = torch.Generator().manual_seed(2)
logits = torch.randint(0, 3, (R, V), generator=noise).bfloat16()
logits[5] = -1.0
logits[5, [900, 4]] = 7.0
logits[4, 3] = float("nan")
batch = SampleBatch(logits=logits, positions=torch.arange(R), draft_index=1,
    draft_to_target=torch.randperm(V, generator=noise), target_vocab_size=V)
for temperatures in (0.0,), (0.0, 0.9):
    params = SamplingTensors.stack([
        SamplingParams(seed=i, temperature=temperatures[i % len(temperatures)]) for i in range(R)])
    got, expected = (s.sample(batch, params) for s in (TritonSampler(), ReferenceSampler()))
    assert torch.equal(got.token_ids, expected.token_ids), (got.token_ids, expected.token_ids)
    assert torch.equal(got.status, expected.status)
"""


def test_mapped_greedy_drafts_are_the_lowest_draft_ids() -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TIES],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
