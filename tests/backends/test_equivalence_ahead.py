"""Kernels that an equivalence run compiles ahead: each once, for the calls that follow."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from acceptor.backends.conformance import Case
from acceptor.backends.conformance.run import each_case
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import Probabilistic, SampleBatch, SampleOutput, SamplingTensors
from kit.equivalence import ahead
from kit.equivalence.ahead import CPU, PARTS, Claim, Forerun, Forerunner, claim
from kit.equivalence.compare import compare_case
from kit.equivalence.forms import forms
from kit.equivalence.plan import Chunk

CHUNK = Chunk(next(next(forms(1)).parts), 10, 0)


def test_a_name_is_claimed_once(tmp_path: Path) -> None:
    assert [claim(tmp_path, name) for name in "aba"] == [True, True, False]


class Listener(ReferenceSampler):
    """A compiler that keeps the seeds that it was asked about."""

    def __init__(self, heard: list[str], _: Claim) -> None:
        super().__init__()
        self._heard = heard

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        """See `Sampler.sample`."""
        self._heard.append(str((batch.draft_index, params.seeds.tolist())))
        return super().sample(batch, params, **memory)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What one compiler was asked, that of the backend "reference"."""
    asked: list[str] = []
    monkeypatch.setattr(ahead, "COMPILERS", {"reference": "kit.equivalence.ahead:Listener"})
    monkeypatch.setattr(ahead, "Listener", partial(Listener, asked), raising=False)
    ahead._forerunner.cache_clear()
    return asked


def asked_by(heard: list[str], run: Callable[[], None]) -> list[str]:
    run()
    asked = heard[:]
    heard.clear()
    return asked


def test_compilers_are_asked_what_backends_will_be(heard: list[str], tmp_path: Path) -> None:
    plain = Listener(heard, bool)

    def compare(case: Case) -> None:
        compare_case(case, (plain,), CPU)

    expected = asked_by(heard, lambda: each_case(compare, 0, CHUNK.size, CHUNK.form.cases))
    forerun = Forerun(("reference",), tmp_path, time.time() + 600)
    tasks = [*forerun.tasks([CHUNK])]
    assert len(tasks) == 2 * PARTS
    parts = [asked_by(heard, task) for task in tasks[PARTS:]]
    assert all(parts)
    assert sorted(chain.from_iterable(parts)) == sorted(expected)


def test_nothing_goes_ahead_behind_the_deadline(heard: list[str], tmp_path: Path) -> None:
    for task in Forerun(("reference",), tmp_path, time.time()).tasks([CHUNK]):
        task()
    assert heard == []


@pytest.mark.usefixtures("heard")
def test_nothing_goes_ahead_of_backends_that_compile_nothing(tmp_path: Path) -> None:
    assert [*Forerun(("package:Class",), tmp_path, time.time() + 600).tasks([CHUNK])] == []


@pytest.mark.slow
def test_a_variant_of_cupy_is_compiled_by_whoever_claims_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cupy")
    h200 = SimpleNamespace(major=9, minor=0, shared_memory_per_multiprocessor=228 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: h200)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (claims := tmp_path / "claims").mkdir()
    case = Case(seed=3, vocab_size=7, num_draft_tokens=(2, 1), policy=Probabilistic())
    found = compare_case(case, (Forerunner.of(("cupy",), claims),), CPU)
    assert (found.compared.num_batches, found.compared.num_differences) == (1, 0)
    compiled = [*(tmp_path / "cache").rglob("*.cubin")]
    assert {path.name for path in compiled} == {path.name for path in claims.iterdir()}
    assert len(compiled) == 2, "one of verification, one of draws"
    for path in compiled:
        path.unlink()
    compare_case(case, (Forerunner.of(("cupy",), claims),), CPU)
    assert not any(path.exists() for path in compiled)


TRITON = """
import sys
from pathlib import Path
from functools import partial
from itertools import chain
import torch
from triton import knobs
from triton.runtime import driver
from triton.backends.compiler import GPUTarget

class NoDriver:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

driver.set_active(NoDriver())
from acceptor.core import SampleBatch, SampleOutput, *
from kit.equivalence.ahead import claim
from kit.equivalence.ahead_triton import TritonCompiler

def draw(V, compiler):
    batch = SampleBatch(logits=torch.zeros(2, V), positions=torch.zeros(2, dtype=int))
    compiler.sample(batch, SamplingTensors.stack([SamplingParams(seed=1)] * 2))

def compiled():
    return {path: path.stat().st_mtime_ns for path in Path(knobs.cache.dir).rglob("*.cubin")}

(claims := Path(sys.argv[1])).mkdir()
first, second = (TritonCompiler(partial(claim, claims)) for _ in range(2))
draw(7, first)
before = compiled()
assert len(before) == len([*claims.iterdir()]) == 2, "statistics and the draw"
draw(7, second)
draw(8, second)
assert compiled() == before, "both sizes take the same kernels"
draw(5000, second)
assert len(compiled()) > len(before)
assert knobs.cache.manager_class is None, "others ask nobody"
"""


@pytest.mark.slow
def test_kernels_of_triton_are_compiled_by_whoever_claims_them(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    finished = subprocess.run(
        [sys.executable, "-c", TRITON, str(tmp_path / "claims")],
        env={
            **os.environ, "PYTHONPATH": "tests",
            "TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_INTERPRET": "0",
        },
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
