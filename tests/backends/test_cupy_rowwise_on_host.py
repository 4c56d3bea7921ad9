"""The kernel that deals rows out one by one, built by g++, returns what the reference returns."""

import pytest
import torch

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.compiler import form_of
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import Block, Policy, Strict
from acceptor.tests.kit.cuda_batches import random_batch, refused_batch
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_once, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("rowwise")
    return build_once("verify_on_host", folder, lambda _: ["-DHAS_ROWWISE", *form_of("rowwise")])


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("policy", [Strict(), Block()], ids=lambda policy: policy.name)
def test_rows_dealt_out_one_by_one_give_the_reference_s_tokens(
    build: Build, policy: Policy, aligned: bool
) -> None:
    torch.set_num_threads(1)
    for seed in range(4):
        batch, params = random_batch(seed, False, aligned=aligned, ragged=aligned and seed % 2 == 1)
        expected = load_sampler("reference").verify(batch, params, policy)
        library = build(verify_job(batch, params, policy, None).variant)
        for schedule, parts in enumerate((1, 2, 3)):
            library.set_schedule(schedule)
            num_ctas = parts * (batch.max_spec_len + 1) * batch.num_reqs
            shape = LaunchShape(group=parts, num_ctas=num_ctas, by_rows=True)
            got = run(build, batch, params, policy, shape)
            assert torch.equal(got.token_ids, expected.token_ids), (seed, parts)
            assert torch.equal(got.num_accepted, expected.num_accepted)
            assert torch.equal(got.status, expected.status)


def test_what_bounds_of_residuals_tell_is_what_the_reference_says(build: Build) -> None:
    torch.set_num_threads(1)
    for seed in range(6):
        batch, params = refused_batch(seed)
        expected = load_sampler("reference").verify(batch, params, Block())
        for parts in (1, 2):
            num_ctas = parts * (batch.max_spec_len + 1) * batch.num_reqs
            shape = LaunchShape(group=parts, num_ctas=num_ctas, by_rows=True)
            got = run(build, batch, params, Block(), shape)
            assert torch.equal(got.token_ids, expected.token_ids), (seed, parts)
