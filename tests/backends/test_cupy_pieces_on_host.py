"""The kernels that read pieces of rows and decide, built by g++, return the reference's tokens."""

import ctypes
from typing import Any

import pytest
import torch
from attrs import frozen

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.compiler import form_of
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import SamplingParams, SamplingTensors, Strict, VerifyBatch
from acceptor.tests.kit.cuda_batches import random_batch
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_once, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]


@frozen(eq=False)
class BothKernels:
    """Each from a library of its own: they differ in the size of a CTA."""

    pieces: Any
    deciding: ctypes.CDLL

    def run_pieces_end(self, packed: bytes, num_ctas: int) -> None:
        self.deciding.run_pieces_end(packed, num_ctas)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pieces, name)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    builds = []
    for kernel in ("pieces", "pieces_end"):
        options = ["-DHAS_PIECES", *form_of(kernel)]
        folder = tmp_path_factory.mktemp(kernel)
        builds.append(build_once("verify_on_host", folder, lambda _, o=options: o))  # type: ignore[misc]
    both: Any = lambda variant: BothKernels(*(one(variant) for one in builds))  # noqa: E731
    made: Build = both
    return made


def _in_parts(batch: VerifyBatch, parts: int) -> LaunchShape:
    num_ctas = parts * (batch.max_spec_len + 1) * batch.num_reqs
    return LaunchShape(group=parts, num_ctas=num_ctas, by_pieces=True)


def _batch(seed: int, *, greedy: bool, aligned: bool) -> tuple[VerifyBatch, SamplingTensors]:
    ragged = not aligned or seed % 2 == 1
    batch, params = random_batch(seed, filtered=False, aligned=aligned, ragged=ragged)
    if greedy:
        params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0.0) for i in range(5)])
    return batch, params


def _check(build: Build, batch: VerifyBatch, params: SamplingTensors, parts: int) -> None:
    expected = load_sampler("reference").verify(batch, params, Strict())
    got = run(build, batch, params, Strict(), _in_parts(batch, parts))
    assert torch.equal(got.token_ids, expected.token_ids), parts
    assert torch.equal(got.num_accepted, expected.num_accepted)
    assert torch.equal(got.status, expected.status)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("greedy", [False, True])
def test_pieces_of_rows_give_the_reference_s_tokens(
    build: Build, greedy: bool, aligned: bool
) -> None:
    torch.set_num_threads(1)
    for seed in range(4):
        batch, params = _batch(seed, greedy=greedy, aligned=aligned)
        library = build(verify_job(batch, params, Strict(), None).variant)
        for schedule, parts in enumerate((1, 3, 5)):
            library.set_schedule(schedule)
            _check(build, batch, params, parts)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_row_of_many_pieces(build: Build, greedy: bool) -> None:
    batch, params = _batch(1, greedy=greedy, aligned=True)
    for parts in (17, 32):
        _check(build, batch, params, parts)


@pytest.mark.parametrize("greedy", [False, True])
def test_rows_behind_an_end_are_not_read(build: Build, greedy: bool) -> None:
    batch, params = _batch(0, greedy=greedy, aligned=True)
    library = build(verify_job(batch, params, Strict(), None).variant)
    library.set_schedule(0)
    library.set_together(0)
    library.take_num_vectors()
    _check(build, batch, params, parts=5)
    library.set_together(1)
    vectors_of_first_rows = batch.num_reqs * batch.vocab_size // 8
    assert library.take_num_vectors() == 2 * vectors_of_first_rows  # in two launches
