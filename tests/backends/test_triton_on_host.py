"""Triton's kernels agree with the reference in its interpreter, whatever the rows hold."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")


@pytest.mark.slow
@pytest.mark.parametrize("check", ["thresholds", "search", "policies", "shards", "launches"])
def test_the_interpreted_kernels_are_right_about(check: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "kit.triton_on_host", check],
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(["tests", os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-1000:]
