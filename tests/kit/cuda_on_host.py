"""CUDA sources built by g++, to be called as functions of the host."""

import ctypes
import shutil
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

from acceptor.backends.cupy_backend.arguments import Job, place, verify_job
from acceptor.backends.cupy_backend.params import pack
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.backends.cupy_backend.variant import Variant
from acceptor.backends.cupy_backend.workspace import Workspace
from acceptor.core import Policy, SamplingTensors, VerifyBatch
from acceptor.core.output import VerifyOutput

from .kept_libraries import KeptLibraries

Build = Callable[[Variant], ctypes.CDLL]

GXX = shutil.which("g++")
_ROOT = Path(__file__).parents[2]
_FOLDERS = ("tests/backends/cuda_on_host", "tests/cuda_on_host", "backends/cupy_backend/cuda")
_LIBRARIES = KeptLibraries(_ROOT / ".host_cache", [_ROOT / folder for folder in _FOLDERS])


def build_on_host(
    source: str, variant: Variant, folder: Path, macros: Sequence[str] = ()
) -> ctypes.CDLL:
    """Compile a file of tests/backends/cuda_on_host.

    Args:
        source: its name without `.cpp`.
        variant: what its macros say.
        folder: where the library goes.
        macros: further compiler options.
    """
    library = folder / f"{source}-{abs(hash(variant))}.so"
    # A file that were loaded twice would be one library, which remembers what other tests told it.
    shutil.copyfile(_LIBRARIES.of(source, (*variant.macros, *macros)), library)
    return ctypes.CDLL(str(library))


def build_once(
    source: str, folder: Path, macros_of: Callable[[Variant], Sequence[str]] = lambda _: ()
) -> Build:
    """Compiles a variant when it is first asked for, see `build_on_host`."""
    return cache(lambda variant: build_on_host(source, variant, folder, macros_of(variant)))


def run(
    build: Build, batch: VerifyBatch, params: SamplingTensors, policy: Policy, shape: LaunchShape
) -> VerifyOutput:
    """Verify a batch on the host; whatever a kernel leaves unwritten is -77 or NaN."""
    job = verify_job(batch, params, policy, None)
    size = (batch.num_reqs, batch.max_spec_len + 1)
    tokens = torch.full(size, -77, dtype=torch.int64)
    accepted = torch.full(size[:1], -77, dtype=torch.int32)
    status = torch.full(size[:1], -77, dtype=torch.int32)
    reports = not policy.lossless and policy.uses_draft_probs
    variation = torch.full(size, torch.nan) if reports else None
    job.fields["token_ids"] = tokens.data_ptr()
    job.fields["num_accepted"] = accepted.data_ptr()
    job.fields["status"] = status.data_ptr()
    if variation is not None:
        job.fields["variation"] = variation.data_ptr()
    launch_twice(build(job.variant), job, shape)
    return VerifyOutput(tokens, accepted, status, None, variation)


def launch_twice(library: ctypes.CDLL, job: Job, shape: LaunchShape) -> None:
    """The second launch finds the control words as the first left them; neither leaves its room."""
    control = torch.zeros(job.extent.control_words + 8, dtype=torch.int32)
    scratch = torch.full((job.extent.scratch_bytes + 64,), 0xAB, dtype=torch.uint8)
    control[-8:] = 77
    place(job.fields, job.extent, Workspace(control, scratch))
    job.fields.update(shape.fields(job.extent))
    packed = bytes(pack(job.fields, job.numbers, job.rates))
    assert library.params_size() == len(packed)
    for _ in range(2):
        for kernel, grid in shape.launches(job.extent, job.variant.pieces):
            getattr(library, f"run_{kernel}")(packed, struct.pack("3I", *grid))
        assert not control[:-8].any()
    assert (control[-8:] == 77).all()
    assert (scratch[-64:] == 0xAB).all()
