"""What Triton's kernels become: `python -m kit.machine_code 90`, no device is needed.

Counts registers, and the instructions of each kernel and of its longest loop, for a headline batch
on devices of that compute capability (90 is an H100 or H200). Counting is not timing.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from attrs import frozen
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from acceptor.backends.triton_backend import TritonSampler
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)

NUM_REQS, NUM_DRAFTS, VOCAB_SIZE = 16, 3, 151_936
CASES: dict[str, tuple[Policy, float]] = {
    "probabilistic": (Probabilistic(), 0.8),
    "greedy": (Probabilistic(), 0.0),
    "strict": (Strict(), 0.8),
    "block": (Block(), 0.8),
}
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
LABEL = re.compile(r"(\.L_x_\d+):")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([^;]*);")
JUMP = re.compile(r"BRA.*`\((\.L_x_\d+)\)")


class NoDriver:
    """A driver of Triton's for a device that is not there."""

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        return GPUTarget("cuda", int(sys.argv[1]), 32)

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one of the only device."""
        return device


@frozen
class Count:
    """Instructions, and those among them that make lanes or warps meet."""

    instructions: int
    shuffles: int
    barriers: int

    @classmethod
    def of(cls, instructions: Sequence[str]) -> "Count":
        """How many there are of each."""
        shuffles = sum(name.startswith("SHFL") for name in instructions)
        barriers = sum(name.startswith("BAR") for name in instructions)
        return cls(len(instructions), shuffles, barriers)

    def __str__(self) -> str:
        return f"{self.instructions} / {self.shuffles} / {self.barriers}"


def count(cubin: bytes) -> tuple[int, Count, Count]:
    """Registers, all instructions, and those of the longest loop."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _output(TOOLS / "cuobjdump", "-res-usage", file.name)
        lines = _output(TOOLS / "nvdisasm", "-c", file.name).splitlines()
    registers = int(re.findall(r"REG:(\d+)", usage)[0])
    instructions, loops = _read(lines)
    longest = max(loops, key=len, default=())
    return registers, Count.of(instructions), Count.of(longest)


def _output(tool: Path, *arguments: str) -> str:
    command = [str(tool), *arguments]
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


def _read(lines: Iterable[str]) -> tuple[list[str], list[Sequence[str]]]:
    instructions: list[str] = []
    loops: list[Sequence[str]] = []
    places: dict[str, int] = {}
    for line in lines:
        if label := LABEL.match(line):
            places[label[1]] = len(instructions)
        if instruction := INSTRUCTION.match(line):
            instructions.append(instruction[1])
            jump = JUMP.match(instruction[1])
            if jump and jump[1] in places:
                loops.append(instructions[places[jump[1]] :])
    return instructions, loops


def compile_and_count(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> None:
    """A launcher that only looks at what it would launch."""
    compiled = kernel.warmup(*args, grid=grid, **options)
    registers, everything, loop = count(compiled.asm["cubin"])
    sys.stdout.write(f"  {kernel.__name__}: {registers} | {everything} | {loop}\n")
    sys.stdout.flush()


def main() -> None:
    """Print what every kernel of every case becomes."""
    driver.set_active(NoDriver())
    sys.stdout.write(f"Triton {triton.__version__}: registers | all | longest loop, ")
    sys.stdout.write("each in instructions / shuffles / barriers\n")
    shape = (NUM_REQS, NUM_DRAFTS, VOCAB_SIZE)
    draft_logits = torch.empty(shape, dtype=torch.bfloat16)
    target_shape = (NUM_REQS, NUM_DRAFTS + 1, VOCAB_SIZE)
    batch = VerifyBatch.dense(
        target_logits=torch.empty(target_shape, dtype=torch.bfloat16),
        draft_token_ids=torch.zeros(NUM_REQS, NUM_DRAFTS, dtype=torch.int64),
        positions=torch.zeros(NUM_REQS, dtype=torch.int64),
        draft_logits=draft_logits,
    )
    for name, (policy, temperature) in CASES.items():
        sys.stdout.write(f"{name}\n")
        wishes = [SamplingParams(seed=i, temperature=temperature) for i in range(NUM_REQS)]
        TritonSampler(compile_and_count).verify(batch, SamplingTensors.stack(wishes), policy)


if __name__ == "__main__":
    main()
