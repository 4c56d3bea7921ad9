"""The kernels for few tokens say what torch's operations say, and compile for GPUs that overlap."""

import os
import subprocess
import sys

import pytest

COMPILE_ALL = """
import sys, torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class NoDriver:
    def get_current_target(self): return GPUTarget("cuda", int(sys.argv[1]), 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

driver.set_active(NoDriver())
from acceptor.adapters.few_tokens import attend, forward
from attrs import evolve
from kit.few_tokens import MAX_LEN, model_of

compiled = set()

class CompileOnly:
    def __init__(self, kernel): self.kernel = kernel
    def __getitem__(self, grid):
        def compile(*args, **options):
            assert self.kernel.warmup(*args, grid=grid, **options).asm["cubin"]
            compiled.add(self.kernel.__name__)
        return compile

kernels = ["vector_kernel", "matrix_kernel", "embedding_kernel"]
for name in kernels:
    setattr(forward, name, CompileOnly(getattr(forward, name)))
attend.attention_kernel = CompileOnly(attend.attention_kernel)
for architecture, window, num_tokens in (("biased", 20, 1), ("normalised heads", None, 3)):
    model = model_of(architecture, window, torch.bfloat16)
    few = forward.FewTokens.of(model.decoder, model.config.rope.table(MAX_LEN).bfloat16())
    few = evolve(few, attend=evolve(few.attend, overlaps=int(sys.argv[1]) >= 90))
    ids = torch.zeros(1, num_tokens, dtype=torch.int64)
    few.forward(ids, ids, ids[:, 0], model.new_cache(1, MAX_LEN), last_only=False)
assert compiled == {*kernels, "attention_kernel"}
"""


@pytest.mark.slow
def test_the_interpreted_kernels_agree_with_plain_operations() -> None:
    run(["-m", "kit.few_tokens"], TRITON_INTERPRET="1")


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "90", "100"])
def test_all_kernels_compile(capability: str) -> None:
    run(["-c", COMPILE_ALL, capability])


def run(arguments: list[str], **more: str) -> None:
    environment = {**os.environ, "PYTHONPATH": "tests", "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env=environment | more,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-2000:]
