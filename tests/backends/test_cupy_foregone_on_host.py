"""Draws that the CUDA kernels make without a law are those that the law makes: the reference's."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import Probabilistic, SamplingParams, SamplingTensors, VerifyBatch
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_once, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
NUM_REQS, NUM_DRAFTS, VOCAB_SIZE = 12, 3, 10_264
RECIPES: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 12},
    {"temperature": 1.2, "min_p": 0.02, "top_p": 0.95},
    {"temperature": 0.6, "top_k": 5, "top_p": 0.99},
    {"temperature": 1.0, "min_p": 0.05},
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder: Path = tmp_path_factory.mktemp("kernels")
    return build_once("verify_on_host", folder, lambda v: ["-DHAS_WIDE"] * v.has_wide)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_law_that_is_not_looked_for_would_have_drawn_the_same(
    build: Build, dtype: torch.dtype
) -> None:
    torch.set_num_threads(1)
    foregone = 0
    for seed, recipe in product(range(3), RECIPES):
        batch = peaked_batch(seed, dtype)
        params = SamplingTensors.stack(
            [SamplingParams(seed=100 * seed + i, **recipe) for i in range(NUM_REQS)]
        )
        expected = load_sampler("reference").verify(batch, params, Probabilistic())
        library = build(verify_job(batch, params, Probabilistic(), None).variant)
        for group, may_be in ((0, True), (2, True), (0, False)):
            library.let_be_foregone(may_be)
            shape = LaunchShape(group, NUM_REQS * max(group, 1))
            got = run(build, batch, params, Probabilistic(), shape)
            assert torch.equal(got.token_ids, expected.token_ids), (seed, recipe, group, may_be)
            assert torch.equal(got.status, expected.status)
            num_foregone = library.take_num_foregone()
            assert may_be or num_foregone == 0
            foregone += num_foregone
    library.let_be_foregone(True)
    assert foregone > 100


def test_what_lies_behind_a_row_is_not_looked_at(build: Build) -> None:
    """The last block is short, and every logit that a bound of -inf lets pass is of the row."""
    noise = torch.Generator().manual_seed(0)
    rows = torch.randn(2, VOCAB_SIZE, generator=noise)
    rows[:, 5::512] = 14.0
    rows[:, VOCAB_SIZE - 14] = 14.0
    padded = torch.empty(2, VOCAB_SIZE + 512, dtype=torch.bfloat16)
    padded[:, :VOCAB_SIZE] = rows.bfloat16()
    batch = VerifyBatch(
        target_logits=padded[:, :VOCAB_SIZE],
        cu_num_logits=torch.tensor([0, 2]),
        draft_token_ids=torch.tensor([[-1]]),
        positions=torch.arange(1),
        draft_logits=rows[None, :1].bfloat16(),
    )
    for seed in range(12):
        params = SamplingTensors.stack([SamplingParams(seed=seed, temperature=1.0, top_k=50)])
        expected = load_sampler("reference").verify(batch, params, Probabilistic())
        for behind in (0.0, 30.0):
            padded[:, VOCAB_SIZE:] = behind
            got = run(build, batch, params, Probabilistic(), LaunchShape(0, 1))
            assert torch.equal(got.token_ids, expected.token_ids), (seed, behind)


def test_all_ctas_of_a_request_forgo_the_same_draws(build: Build) -> None:
    """More blocks could win than there is room for: it must not matter who is faster."""
    vocab_size, drafted, heavy = 151_936, 512 * 7 + 5, 512 * 40 + 5
    target = torch.full((1, 2, vocab_size), -20.0)
    target[:, :, 5::512] = 0.0
    draft = target[:, :1].clone()
    target[0, 0, heavy], draft[0, 0, heavy], draft[0, 0, drafted] = 2.303, -0.693, 1.609
    batch = VerifyBatch.dense(
        target_logits=target,
        draft_token_ids=torch.tensor([[drafted]]),
        positions=torch.arange(1),
        draft_logits=draft,
    )
    for seed in (1, 2, 14, 15):
        params = SamplingTensors.stack([SamplingParams(seed=seed, temperature=1.0, top_p=0.999)])
        library = build(verify_job(batch, params, Probabilistic(), None).variant)
        library.set_schedule(1)
        library.take_num_foregone()
        got = run(build, batch, params, Probabilistic(), LaunchShape(2, 2))
        library.set_schedule(0)
        expected = load_sampler("reference").verify(batch, params, Probabilistic())
        assert torch.equal(got.token_ids, expected.token_ids), seed
        assert library.take_num_foregone() % 2 == 0


def peaked_batch(seed: int, dtype: torch.dtype) -> VerifyBatch:
    """Few tokens stand out of a broad rest, some of them in one block; the draft nearly agrees."""
    noise = torch.Generator().manual_seed(seed)
    target = 2 * torch.randn(NUM_REQS, NUM_DRAFTS + 1, VOCAB_SIZE, generator=noise)
    places = (NUM_REQS, NUM_DRAFTS + 1, 8)
    where = torch.randint(VOCAB_SIZE, places, generator=noise)
    heights = torch.empty(places).uniform_(4, 16, generator=noise)
    target.scatter_add_(2, where, heights)
    apart = torch.randn(NUM_REQS, NUM_DRAFTS, VOCAB_SIZE, generator=noise)
    draft = target[:, :-1] + (0.3 + 0.3 * (seed % 3)) * apart
    drafts = torch.multinomial((draft / 0.8).softmax(-1).flatten(0, 1), 1, generator=noise)
    return VerifyBatch.dense(
        target_logits=target.to(dtype),
        draft_token_ids=drafts.view(NUM_REQS, NUM_DRAFTS),
        positions=torch.arange(NUM_REQS),
        draft_logits=draft.to(dtype),
    )
