"""How long a Triton call keeps the host busy: `python -m kit.host_time`, no device is needed.

Kernels are compiled, and launched into a stand-in of the CUDA driver that runs nothing. So these
are the times of Python and of Triton's launcher, without those of the driver and of the device.
"""

import ctypes
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from acceptor.backends.triton_backend import TritonSampler
from acceptor.backends.triton_backend.launch import start
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)

SOURCE = Path(__file__).parents[1] / "backends" / "cuda_on_host" / "no_device.c"
NUM_DRAFTS, VOCAB_SIZE = 3, 151_936
COUNT, CALLS = 1000, 10
"""Times that are taken, and calls in each."""

WORKLOADS: tuple[tuple[str, Policy, dict[str, float]], ...] = (
    ("probabilistic", Probabilistic(), {}),
    ("probabilistic, top-p 0.9", Probabilistic(), {"top_p": 0.9}),
    ("strict", Strict(), {}),
    ("block", Block(), {}),
)

Call = Callable[[], object]


class NoDevice:
    """A driver of Triton's for a device of compute capability 9.0 that is not there."""

    def __init__(self, folder: Path) -> None:
        library = folder / "libcuda.so.1"
        include = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
        build = ["gcc", "-shared", "-fPIC", "-O2", "-w", f"-I{include}", str(SOURCE)]
        subprocess.run([*build, "-Wl,-soname,libcuda.so.1", "-o", str(library)], check=True)
        (folder / "libcuda.so").symlink_to(library)
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        knobs.nvidia.libcuda_path = str(folder)
        from triton.backends.nvidia.driver import CudaLauncher, CudaUtils  # noqa: PLC0415

        self.utils, self.launcher_cls = CudaUtils(), CudaLauncher

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one of the only device."""
        return device


def start_unknown(*args: Any, **options: Any) -> None:
    """Launch without telling what was launched, so that nothing can be remembered."""
    start(*args, **options)


def calls_of(
    policy: Policy, recipe: dict[str, Any], num_reqs: int, launch: Callable[..., Any]
) -> tuple[Call, Call]:
    """A call into memory that was reserved, and one that allocates."""
    shape = (num_reqs, NUM_DRAFTS + 1, VOCAB_SIZE)
    batch = VerifyBatch.dense(
        target_logits=torch.zeros(shape, dtype=torch.bfloat16),
        draft_token_ids=torch.zeros(num_reqs, NUM_DRAFTS, dtype=torch.int64),
        positions=torch.zeros(num_reqs, dtype=torch.int64),
        draft_logits=torch.zeros(num_reqs, NUM_DRAFTS, VOCAB_SIZE, dtype=torch.bfloat16),
    )
    wishes = [SamplingParams(seed=i, temperature=0.8, **recipe) for i in range(num_reqs)]
    params = SamplingTensors.stack(wishes)
    sampler = TritonSampler(launch)
    workspace = torch.zeros(sampler.verify_workspace_size(batch, params, policy), dtype=torch.uint8)
    out = sampler.verify(batch, params, policy)
    return (
        lambda: sampler.verify(batch, params, policy, workspace=workspace, out=out),
        lambda: sampler.verify(batch, params, policy),
    )


def microseconds(call: Call) -> tuple[float, float]:
    """Of one call: the least and the median."""
    call()
    times = []
    for _ in range(COUNT):
        before = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter_ns() - before) / CALLS / 1000)
    return min(times), statistics.median(times)


def lines() -> Iterator[str]:
    """A table in Markdown, and what was measured where."""
    yield f"{date.today()}, {_processor()}, Triton {triton.__version__}; least / median µs\n"
    yield "| | reserved memory | allocating | reserved, by Triton's launcher |"
    yield "|---|---|---|---|"
    for name, policy, recipe in WORKLOADS:
        for num_reqs in 1, 16:
            reserved, allocating = calls_of(policy, recipe, num_reqs, start)
            unknown, _ = calls_of(policy, recipe, num_reqs, start_unknown)
            times = [microseconds(call) for call in (reserved, allocating, unknown)]
            cells = " | ".join(f"{least:.1f} / {median:.1f}" for least, median in times)
            yield f"| {name}, {num_reqs} requests | {cells} |"


def main() -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        driver.set_active(NoDevice(Path(folder)))
        for line in lines():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
