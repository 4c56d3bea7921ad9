"""The kernel of the floor reads every word exactly once, and compiles for the GPUs people have."""

import os
import subprocess
import sys

IN_THE_INTERPRETER = """
import torch
from acceptor.app.bench.kernels.read_once import SHAPES, ReadOnce

words = torch.arange(20_001, dtype=torch.int32)
for shape in SHAPES:
    assert ReadOnce(words, shape)().tolist() == [int(part.max()) for part in words.split(shape[0])]
"""
AHEAD_OF_TIME = """
import itertools
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from acceptor.app.bench.kernels.read_once import SHAPES, read_once_kernel

types = {"words": "*i32", "maxima": "*i32", "num_words": "i32", "SPAN": "constexpr"}
aligned = {(place,): [["tt.divisibility", 16]] for place in range(3)}
for capability, (span, num_warps) in zip(itertools.cycle((80, 90, 100)), (*SHAPES, SHAPES[0])):
    source = ASTSource(read_once_kernel, types, {"SPAN": span}, aligned)
    target = GPUTarget("cuda", capability, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": num_warps})
    loads = compiled.asm["ptx"].count("ld.global")
    assert loads == compiled.asm["ptx"].count("ld.global.v4") > 0
"""


def run(program: str, *, interpret: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert finished.returncode == 0, finished.stderr[-2000:]


def test_every_word_is_read_once() -> None:
    run(IN_THE_INTERPRETER, interpret="1")


def test_it_compiles_to_wide_loads() -> None:
    run(AHEAD_OF_TIME, interpret="0")
