"""The kernels that read pieces of pairs of rows, built by g++, return the reference's tokens."""

from typing import Any

import pytest
import torch

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import Probabilistic, Recipe, SamplingParams, SamplingTensors, VerifyBatch
from acceptor.core.race import BLOCK_SIZE
from acceptor.tests.kit.cuda_batches import random_batch, refused_batch
from acceptor.tests.kit.cuda_on_host import GXX, Build, run
from acceptor.tests.kit.pieces_on_host import build_pieces

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
RECIPES: tuple[dict[str, Any], ...] = (
    {"top_p": 0.9},
    {"top_k": 20, "top_p": 0.9},
    {"min_p": 0.02, "top_p": 0.95},
    {"top_k": 3},
    {"min_p": 0.2},
    {"top_k": 40, "top_p": 0.5, "draft": Recipe(temperature=1.2, top_k=9)},
    {"draft": Recipe(temperature=0.8, top_p=0.7)},
    {"draft": Recipe(temperature=0.0)},
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build_pieces(tmp_path_factory.mktemp("pairs"))


def _in_parts(batch: VerifyBatch, parts: int) -> LaunchShape:
    num_ctas = parts * (2 * batch.max_spec_len + 1) * batch.num_reqs
    return LaunchShape(group=parts, num_ctas=num_ctas, by_pieces=True)


def _library(build: Build, batch: VerifyBatch, params: SamplingTensors) -> Any:
    return build(verify_job(batch, params, Probabilistic(), None).variant)


def _check(build: Build, batch: VerifyBatch, params: SamplingTensors, parts: int) -> torch.Tensor:
    expected = load_sampler("reference").verify(batch, params, Probabilistic())
    got = run(build, batch, params, Probabilistic(), _in_parts(batch, parts))
    assert torch.equal(got.token_ids, expected.token_ids), parts
    assert torch.equal(got.num_accepted, expected.num_accepted)
    assert torch.equal(got.status, expected.status)
    return expected.num_accepted


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("filtered", [False, True])
def test_pieces_of_rows_give_the_reference_s_tokens(
    build: Build, filtered: bool, aligned: bool
) -> None:
    torch.set_num_threads(1)
    for seed in range(3):
        ragged = not aligned or seed % 2 == 1
        batch, params = random_batch(seed, filtered, aligned=aligned, ragged=ragged)
        library = _library(build, batch, params)
        for schedule, parts in enumerate((1, 3, 14)):
            library.set_schedule(schedule)
            _check(build, batch, params, parts)
        library.set_schedule(0)


@pytest.mark.parametrize("filtered", [False, True])
def test_rows_behind_an_end_are_left_out_where_recipes_differ(build: Build, filtered: bool) -> None:
    torch.set_num_threads(1)
    seen = set()
    for seed in range(4):
        batch, _ = refused_batch(seed)
        wishes = []
        for i in range(8):
            recipe = RECIPES[(i + seed) % 8] if filtered else RECIPES[7] if i == 5 else {}
            temperature = 0.0 if i == 6 else (0.8, 1.0, 1.5, 3.0)[i % 4]
            wishes.append(SamplingParams(seed=seed, **{"temperature": temperature, **recipe}))
        params = SamplingTensors.stack(wishes)
        library = _library(build, batch, params)
        for together in (1, 0):
            library.set_together(together)
            seen |= set(_check(build, batch, params, 5).tolist())
        library.set_together(1)
    assert seen == {0, 1, 2, 3}


def _refused(drafts: tuple[int, ...]) -> VerifyBatch:
    """Requests whose draft token at a row is one that the target hardly ever draws."""
    noise = torch.Generator().manual_seed(0)
    target = torch.randn(len(drafts), 4, 17_160, generator=noise)
    tokens = torch.randint(17_160, (len(drafts), 3), generator=noise)
    target[:, :3].scatter_(2, tokens[..., None], 20.0)
    draft = target[:, :3].clone()
    for request, row in enumerate(drafts):
        target[request, row, tokens[request, row]] = -20.0
        target[request, row, 77] = 20.0
    return VerifyBatch.dense(
        target_logits=target.bfloat16(),
        draft_token_ids=tokens,
        positions=torch.arange(len(drafts)),
        draft_logits=draft.bfloat16(),
    )


@pytest.mark.parametrize("recipe", [{}, *RECIPES[:4]], ids=str)
def test_as_many_rows_are_read_as_are_judged(build: Build, recipe: dict[str, Any]) -> None:
    ends = (0, 2, 1, 0)
    batch = _refused(ends)
    params = SamplingTensors.stack([SamplingParams(seed=i, **recipe) for i in range(4)])
    library = _library(build, batch, params)
    library.set_together(0)
    library.take_num_vectors()
    assert _check(build, batch, params, 14).tolist() == list(ends)
    library.set_together(1)
    in_two_launches = 2 * sum(2 * (end + 1) for end in ends) * batch.vocab_size // 8
    # Each of 16 warps reads a block of both rows that the residual's token may come from.
    drawn_from = library.take_num_vectors() - in_two_launches
    assert 0 <= drawn_from <= 2 * len(ends) * 16 * 2 * BLOCK_SIZE // 8


@pytest.mark.parametrize("recipe", [{}, RECIPES[1]], ids=str)
def test_rows_with_no_law_are_told(build: Build, recipe: dict[str, Any]) -> None:
    batch = _refused((2, 2, 2, 2, 2, 2))
    assert batch.draft_logits is not None
    target, draft = batch.target_logits.view(6, 4, -1), batch.draft_logits
    target[0, 1, 9000] = torch.nan
    target[1, 0, 12_000] = torch.inf
    target[2, 1] = -torch.inf
    draft[3, 1, 300] = torch.nan
    draft[4, 0] = -torch.inf
    target[5, 3, 5] = torch.nan
    params = SamplingTensors.stack([SamplingParams(seed=i, **recipe) for i in range(6)])
    library = _library(build, batch, params)
    for together in (1, 0):
        library.set_together(together)
        _check(build, batch, params, 4)
    library.set_together(1)


@pytest.mark.parametrize("num_drafts", [1, 7])
@pytest.mark.parametrize("recipe", [{}, RECIPES[0]], ids=str)
def test_a_draft_has_one_token_or_many(
    build: Build, recipe: dict[str, Any], num_drafts: int
) -> None:
    noise = torch.Generator().manual_seed(num_drafts)
    target = 2 * torch.randn(3, num_drafts + 1, 2624, generator=noise)
    draft = target[:, :-1] + 0.3 * torch.randn(3, num_drafts, 2624, generator=noise)
    drafts = torch.multinomial(draft.softmax(-1).flatten(0, 1), 1, generator=noise)
    batch = VerifyBatch.dense(
        target_logits=target.bfloat16(),
        draft_token_ids=drafts.view(3, num_drafts),
        positions=torch.tensor([3, 4, 5]),
        draft_logits=draft.bfloat16(),
    )
    params = SamplingTensors.stack([SamplingParams(seed=i, **recipe) for i in range(3)])
    _check(build, batch, params, 2)
