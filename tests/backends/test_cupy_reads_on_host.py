"""How many rows of logits each CUDA kernel reads, counted where g++ built it.

What a kernel may read in vain is written in docs/backends-cupy.md: these are its bounds.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch

from acceptor.app.bench.kernels.inputs import make_step
from acceptor.app.bench.kernels.logits import Logits
from acceptor.app.bench.kernels.workload import Workload
from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    Recipe,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_once, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
NUM_REQS, NUM_DRAFTS, VOCAB_SIZE = 4, 3, 32_768
NARROW, WIDE = LaunchShape(0, NUM_REQS), LaunchShape(4, 4 * NUM_REQS)
PLAIN: dict[str, Any] = {"temperature": 0.8}
FILTERED: dict[str, Any] = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}
FLAT: tuple[dict[str, Any], ...] = (
    {"temperature": 1.5, "top_p": 0.95},
    {"temperature": 1.5, "top_k": 1000},
    {"temperature": 1.5, "top_k": 5000, "top_p": 0.95},
)
DRAWN = 0.5
"""Of a row and request at most: of 64 blocks, those that can win a race are read for it."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("kernels")
    return build_once("verify_on_host", folder, lambda v: ["-DHAS_WIDE"] * v.has_wide)


def rows_read(
    build: Build, batch: VerifyBatch, params: SamplingTensors, policy: Policy, shape: LaunchShape
) -> tuple[float, list[int]]:
    """Vectors read in rows' worth, and how many draft tokens each request keeps."""
    expected = load_sampler("reference").verify(batch, params, policy)
    library = build(verify_job(batch, params, policy, None).variant)
    library.set_together(int(shape.group > 0))  # narrow CTAs share nothing
    library.take_num_vectors()
    got = run(build, batch, params, policy, shape)
    read_twice = library.take_num_vectors()
    library.set_together(1)
    assert torch.equal(got.token_ids, expected.token_ids)
    return read_twice / 2 / (VOCAB_SIZE / 8), expected.num_accepted.tolist()


def rows_of(steps: int, pair: int) -> int:
    """Of a request's first steps: a row or pair for each draft token, then the bonus row."""
    return pair * min(steps, NUM_DRAFTS) + (steps > NUM_DRAFTS)


def peaked_steps(
    policy: Policy, recipe: dict[str, Any]
) -> Iterator[tuple[VerifyBatch, SamplingTensors]]:
    """Batches of the benchmark's form, of which drafts end early and late."""
    for seed in (1, 2):
        noise = torch.Generator().manual_seed(seed)
        workload = Workload(
            num_reqs=NUM_REQS,
            num_spec_tokens=NUM_DRAFTS,
            vocab_size=VOCAB_SIZE,
            dtype="bfloat16",
            recipe=Recipe(**recipe),
            policy=policy.name,
        )
        step = make_step(workload, Logits.random(workload, noise), noise, load_sampler("reference"))
        yield step.batch, step.params


@pytest.mark.parametrize("recipe", [PLAIN, FILTERED], ids=["plain", "filtered"])
@pytest.mark.parametrize("policy", [Strict(), Probabilistic()], ids=lambda policy: policy.name)
def test_one_cta_reads_one_step_behind_an_end(
    build: Build, policy: Policy, recipe: dict[str, Any]
) -> None:
    """The next row or pair is on its way while one is judged; filters read nothing again."""
    torch.set_num_threads(1)
    pair = 2 if policy.uses_draft_probs else 1
    for batch, params in peaked_steps(policy, recipe):
        read, accepted = rows_read(build, batch, params, policy, NARROW)
        judged = sum(rows_of(kept + 1, pair) for kept in accepted)
        ahead = sum(rows_of(min(kept + 2, NUM_DRAFTS + 1), pair) for kept in accepted)
        assert judged < NUM_REQS * rows_of(NUM_DRAFTS + 1, pair)
        assert judged <= read <= ahead + DRAWN * NUM_REQS * (pair - 1)


@pytest.mark.parametrize("recipe", [PLAIN, FILTERED], ids=["plain", "filtered"])
@pytest.mark.parametrize("policy", [Strict(), Probabilistic()], ids=lambda policy: policy.name)
def test_several_ctas_read_each_row_once(
    build: Build, policy: Policy, recipe: dict[str, Any]
) -> None:
    """All at once, also those behind an end, and filters read nothing again."""
    torch.set_num_threads(1)
    pair = 2 if policy.uses_draft_probs else 1
    every = NUM_REQS * rows_of(NUM_DRAFTS + 1, pair)
    for batch, params in peaked_steps(policy, recipe):
        read, _ = rows_read(build, batch, params, policy, WIDE)
        assert every <= read <= every + DRAWN * NUM_REQS * (pair - 1)


@pytest.mark.parametrize("recipe", [PLAIN, FILTERED], ids=["plain", "filtered"])
def test_residuals_of_refused_pairs_are_read_again(build: Build, recipe: dict[str, Any]) -> None:
    """By one CTA, all refused pairs; by several, at most those."""
    torch.set_num_threads(1)
    every = NUM_REQS * rows_of(NUM_DRAFTS + 1, 2)
    for batch, params in peaked_steps(Block(), recipe):
        for shape in (NARROW, WIDE):
            read, accepted = rows_read(build, batch, params, Block(), shape)
            refused = sum(NUM_DRAFTS - kept for kept in accepted)
            assert every <= read <= every + 2 * refused + DRAWN * NUM_REQS


def flat_batch(
    seed: int, policy: Policy, recipe: dict[str, Any]
) -> tuple[VerifyBatch, SamplingTensors]:
    """Rows of N(0, 4), of which thousands of tokens are kept."""
    noise = torch.Generator().manual_seed(seed)
    target = 2 * torch.randn(NUM_REQS, NUM_DRAFTS + 1, VOCAB_SIZE, generator=noise)
    beside = 0.7 * torch.randn(NUM_REQS, NUM_DRAFTS, VOCAB_SIZE, generator=noise)
    draft = (target[:, :NUM_DRAFTS] + beside).bfloat16()
    laws = (draft.float() / recipe["temperature"]).softmax(-1).flatten(0, 1)
    drafts = torch.multinomial(laws, 1, generator=noise).view(NUM_REQS, NUM_DRAFTS)
    batch = VerifyBatch.dense(
        target_logits=target.bfloat16(),
        draft_token_ids=drafts,
        positions=torch.arange(NUM_REQS),
        draft_logits=draft if policy.uses_draft_probs else None,
    )
    wishes = [SamplingParams(seed=10 * seed + i, **recipe) for i in range(NUM_REQS)]
    return batch, SamplingTensors.stack(wishes)


@pytest.mark.parametrize(
    ("policy", "narrow", "wide"),
    [(Strict(), 1.1, 3.1), (Probabilistic(), 2.2, 2.2), (Block(), 3.2, 6.0)],
    ids=["strict", "probabilistic", "block"],
)
def test_flat_rows_are_read_a_few_times(
    build: Build, policy: Policy, narrow: float, wide: float
) -> None:
    """In rows' worth for each row that there is; narrow CTAs leave rows behind an end out."""
    torch.set_num_threads(1)
    every = NUM_REQS * rows_of(NUM_DRAFTS + 1, 2 if policy.uses_draft_probs else 1)
    for seed, recipe in product((1, 2), FLAT):
        batch, params = flat_batch(seed, policy, recipe)
        for shape, most in ((NARROW, narrow), (WIDE, wide)):
            read, _ = rows_read(build, batch, params, policy, shape)
            assert read <= most * every, (seed, recipe, shape)
