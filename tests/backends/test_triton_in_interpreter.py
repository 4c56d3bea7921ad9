"""The conformance kit on the Triton backend, through Triton's interpreter on the CPU.

In a process of its own: the interpreter must be chosen before Triton is imported.
"""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_interpreted_kernels_agree_with_the_reference() -> None:
    kit = "acceptor.backends.conformance"
    wishes = ["--backend", "triton", "--max-vocab-size", "40", "--batches", "8", "--device", "cpu"]
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", kit, *wishes],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-1000:]
