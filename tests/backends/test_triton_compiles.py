"""Every variant of the Triton kernels compiles for the GPUs that people have, without one here."""

import os
import subprocess
import sys

import pytest

COMPILE_ALL = """
import itertools, sys, torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class NoDriver:
    def get_current_target(self): return GPUTarget("cuda", int(sys.argv[1]), 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

driver.set_active(NoDriver())
from acceptor.backends.triton_backend import TritonSampler
from acceptor.core import *

def compile_only(kernel, grid, *args, **options):
    assert kernel.warmup(*args, grid=grid, **options).asm["cubin"]

def batch(dtype, penalties, V=1000):
    return VerifyBatch.dense(
        target_logits=torch.zeros(2, 4, V, dtype=dtype),
        draft_token_ids=torch.zeros(2, 3, dtype=int),
        positions=torch.zeros(2, dtype=int), draft_logits=torch.zeros(2, 3, V, dtype=dtype),
        token_counts=TokenCounts.empty(2, V) if penalties else None)

sampler = TritonSampler(launch=compile_only)
full = dict(top_k=5, top_p=0.9, min_p=0.1, logit_bias={1: 2.0}, presence_penalty=0.5, logprobs=2)
for dtype, wishes, policy in (
    (torch.bfloat16, {}, Probabilistic()), (torch.float32, full, Probabilistic()),
    (torch.float16, full, Strict()), (torch.bfloat16, dict(temperature=0.0), Strict()),
    (torch.bfloat16, {}, Strict()), (torch.bfloat16, {}, Synthetic((0.9, 0.5))),
):
    plain = SamplingParams(seed=2, temperature=wishes.get("temperature", 1.0))
    params = SamplingTensors.stack([SamplingParams(seed=1, **wishes), plain])
    sampler.verify(batch(dtype, params.penalties is not None), params, policy)
params = SamplingTensors.stack([SamplingParams(seed=1)] * 2)
positions = torch.zeros(2, dtype=int)
sampler.sample(SampleBatch(logits=torch.zeros(2, 50), positions=positions, draft_index=1,
    draft_to_target=torch.arange(50), target_vocab_size=99), params)
"""


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "90", "100"])
def test_kernels_compile_for(capability: str, tmp_path: object) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-c", COMPILE_ALL, capability]
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
