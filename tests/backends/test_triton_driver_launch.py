"""The CUDA driver is told the same by later calls as by Triton's own launcher.

In a process of its own, with compiled kernels and a stand-in of the driver, in C.
"""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

COMPARE = """
import ctypes, sys, tempfile, torch
from pathlib import Path
from triton.runtime import driver
from kit.host_time import NoDevice
from acceptor.backends.triton_backend import TritonSampler
from acceptor.backends.triton_backend.launch import start
from acceptor.core import *

R, K, V = 2, 3, 1000
sizes, told, asked = {}, [], []

def sizes_of(kind):
    if isinstance(kind, tuple):
        return [size for part in kind for size in sizes_of(part)]
    return [] if kind == "constexpr" else [dict(i1=1, i32=4, fp32=4).get(kind, 8)]

def learn(*args, **options):
    compiled = start(*args, **options)
    sizes[compiled.function] = [*sizes_of(tuple(compiled.src.signature.values())), 8, 8]
    return compiled

def ask(*args, **options):
    asked.append(args)
    return start(*args, **options)

def read(address, size):
    return bytes((ctypes.c_char * size).from_address(address))

def words(address, count):
    return list((ctypes.c_uint64 * count).from_address(address))

@ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
def listener(config, function, arguments):
    *_, attributes, count = words(config, 7)
    marks = [(read(attributes, 4), read(attributes + 8, 4)) for _ in range(count & 0xFFFFFFFF)]
    given = [*map(read, words(arguments, len(sizes[function])), sizes[function])]
    told.append((function, read(config, 28), read(config + 32, 8), marks, given))

with tempfile.TemporaryDirectory() as folder:
    driver.set_active(NoDevice(Path(folder)))
    batch = VerifyBatch.dense(
        target_logits=torch.zeros(R, K + 1, V, dtype=torch.bfloat16),
        draft_token_ids=torch.zeros(R, K, dtype=torch.int64),
        positions=torch.zeros(R, dtype=torch.int64),
        draft_logits=torch.zeros(R, K, V, dtype=torch.bfloat16))
    policy = eval(sys.argv[1])
    wishes = dict(temperature=0.8, **eval(sys.argv[2]))
    params = SamplingTensors.stack([SamplingParams(seed=i, **wishes) for i in range(R)])
    learner, sampler = TritonSampler(learn), TritonSampler(ask)
    size = sampler.verify_workspace_size(batch, params, policy)
    kept = dict(workspace=torch.zeros(size).byte(), out=learner.verify(batch, params, policy))
    driver_library = ctypes.CDLL("libcuda.so.1")
    where = ctypes.c_void_p.in_dll(driver_library, "listener")
    where.value = ctypes.cast(listener, ctypes.c_void_p).value
    for _ in range(3):
        sampler.verify(batch, params, policy, **kept)
count = len(asked)
assert count == len(sizes) == int(sys.argv[3]) and len(told) == 3 * count, (asked, told)
assert told[:count] == told[count:2 * count] == told[2 * count:]
assert [bool(one[3]) for one in told[:count]] == eval(sys.argv[4])
"""


@pytest.mark.parametrize(
    ("policy", "wishes", "overlapping"),
    [
        ("Strict()", {}, [False, True]),
        pytest.param(
            "Probabilistic()", {"top_p": 0.9}, [False, True, True, True], marks=pytest.mark.slow
        ),
        pytest.param("Typical()", {}, [False, False, False], marks=pytest.mark.slow),
    ],
    ids=["strict", "filtered", "lossy"],
)
def test_the_driver_is_told_what_triton_would_tell_it(
    policy: str, wishes: dict[str, float], overlapping: list[bool]
) -> None:
    environment = {**os.environ, "PYTHONPATH": "tests", "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    arguments = policy, repr(wishes), str(len(overlapping)), repr(overlapping)
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPARE, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
