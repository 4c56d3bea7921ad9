"""Rows that cannot matter and that no CUDA kernel reads, counted where g++ built the kernels.

docs/backends-cupy.md names them, kernel by kernel.
"""

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen

from acceptor.backends import load_sampler
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.compiler import form_of
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.core import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    Recipe,
    RelaxedTopN,
    SamplingParams,
    SamplingTensors,
    Strict,
    Synthetic,
    Typical,
    VerifyBatch,
)
from acceptor.tests.kit.cuda_on_host import GXX, Build, build_once, run
from acceptor.tests.kit.pieces_on_host import build_pieces

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
NUM_DRAFTS, VOCAB_SIZE, BLOCKS = 3, 16_384, 32
GREEDY = Recipe(temperature=0.0)


@frozen(eq=False)
class Builds:
    """Libraries of kernels that read whole requests, rows and pieces of rows."""

    whole: Build
    by_rows: Build
    by_pieces: Build

    def of(self, kernel: str) -> Build:
        """The kernel's."""
        return {"rowwise": self.by_rows, "pieces": self.by_pieces}.get(kernel, self.whole)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    def folder(name: str) -> Path:
        return tmp_path_factory.mktemp(name)

    rows = ["-DHAS_ROWWISE", *form_of("rowwise")]
    return Builds(
        whole=build_once("verify_on_host", folder("whole"), lambda v: ["-DHAS_WIDE"] * v.has_wide),
        by_rows=build_once("verify_on_host", folder("rows"), lambda _: rows),
        by_pieces=build_pieces(folder("pieces")),
    )


def shape_of(kernel: str, batch: VerifyBatch, policy: Policy, group: int = 1) -> LaunchShape:
    """One CTA for a request, or `group` of the wide kernel, one for a row, or a third of a row."""
    requests, rows = batch.num_reqs, batch.max_spec_len + 1
    if kernel == "rowwise":
        return LaunchShape(1, rows * requests, by_rows=True)
    if kernel == "pieces":
        rows += batch.max_spec_len * policy.uses_draft_probs
        return LaunchShape(3, 3 * rows * requests, by_pieces=True)
    group *= kernel == "wide"
    return LaunchShape(group, max(group, 1) * requests)


def blocks_read(
    builds: Builds,
    kernel: str,
    batch: VerifyBatch,
    params: SamplingTensors,
    policy: Policy,
    group: int = 1,
) -> tuple[int, list[int]]:
    """Vectors read in blocks' worth, and draft tokens that requests keep.

    CTAs are one after the other, but for several of one request, which may wait for each other.
    """
    expected = load_sampler("reference").verify(batch, params, policy)
    build = builds.of(kernel)
    library = build(verify_job(batch, params, policy, None).variant)
    library.set_together(int(group > 1))
    library.take_num_vectors()
    got = run(build, batch, params, policy, shape_of(kernel, batch, policy, group))
    read_twice = library.take_num_vectors()
    library.set_together(1)
    assert torch.equal(got.token_ids, expected.token_ids)
    assert torch.equal(got.status, expected.status)
    blocks, rest = divmod(read_twice, 2 * VOCAB_SIZE // BLOCKS // 8)
    assert rest == 0
    return blocks, expected.num_accepted.tolist()


def agreed(num_reqs: int, refused: int = NUM_DRAFTS) -> VerifyBatch:
    """Both models are sure of the same tokens, but the target of another one at row `refused`."""
    noise = torch.Generator().manual_seed(0)
    target = torch.randn(num_reqs, NUM_DRAFTS + 1, VOCAB_SIZE, generator=noise)
    drafts = torch.randint(VOCAB_SIZE, (num_reqs, NUM_DRAFTS), generator=noise)
    target[:, :NUM_DRAFTS].scatter_(2, drafts[..., None], 40.0)
    draft = target[:, :NUM_DRAFTS].clone()
    if refused < NUM_DRAFTS:
        target[:, refused] = torch.randn(num_reqs, VOCAB_SIZE, generator=noise)
        target[:, refused, 77] = 40.0
    return VerifyBatch.dense(
        target_logits=target.bfloat16(),
        draft_token_ids=drafts,
        positions=torch.arange(num_reqs),
        draft_logits=draft.bfloat16(),
    )


def needless(policy: Policy, *, ragged: bool) -> tuple[VerifyBatch, SamplingTensors, int, int]:
    """Requests that lack drafts, or whose draft rows nobody asks for.

    Returns the batch, how many rows matter, and how many requests are not as they are guessed.
    """
    batch = agreed(6)
    drafts = batch.draft_token_ids
    drafts[2], drafts[3, 1:], drafts[4, 2] = -1, -1, VOCAB_SIZE
    wishes = [SamplingParams(seed=i, temperature=0.8) for i in range(6)]
    wishes[1] = evolve(wishes[1], temperature=0.0)
    wishes[5] = evolve(wishes[5], draft=GREEDY)
    dense = 3 + 1 + 2 if policy.uses_draft_probs else 0
    if ragged:
        counts = torch.tensor([4, 4, 1, 2, 4, 4])
        there = torch.arange(4) < counts[:, None]
        logits = batch.target_logits[there.flatten()]
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        batch = evolve(batch, target_logits=logits, cu_num_logits=starts)
    wrong = 0 if ragged else 5 if policy.uses_draft_probs else 3
    return batch, SamplingTensors.stack(wishes), 4 + 4 + 1 + 2 + 3 + 4 + dense, wrong


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(
    ("policy", "kernel"),
    [
        *((policy, kernel) for kernel in ("narrow", "wide") for policy in (Strict(), Block())),
        *((Probabilistic(), kernel) for kernel in ("narrow", "wide", "pieces")),
        *((Strict(), kernel) for kernel in ("rowwise", "pieces")),
        (Block(), "rowwise"),
    ],
    ids=str,
)
def test_rows_that_a_request_lacks_and_needless_draft_rows_are_not_read(
    builds: Builds, policy: Policy, kernel: str, ragged: bool
) -> None:
    torch.set_num_threads(1)
    batch, params, rows, wrong = needless(policy, ragged=ragged)
    read, accepted = blocks_read(builds, kernel, batch, params, policy)
    assert accepted == [3, 3, 0, 1, 2, 3]
    # Of rows that are fetched on a guess, each warp has two blocks on their way.
    warps = {"wide": 16, "rowwise": 4 * 8}.get(kernel, 0)
    assert read == rows * BLOCKS + wrong * warps * 2


@pytest.mark.parametrize("refused", [0, 1, 2])
@pytest.mark.parametrize("kernel", ["rowwise", "pieces"])
def test_rows_behind_an_end_that_is_known_are_not_read(
    builds: Builds, kernel: str, refused: int
) -> None:
    batch = agreed(4, refused)
    params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0.8) for i in range(4)])
    read, accepted = blocks_read(builds, kernel, batch, params, Strict())
    assert accepted == [refused] * 4
    rows = 4 * (refused + 1)
    assert read == rows * BLOCKS


@pytest.mark.parametrize("refused", [0, 1])
@pytest.mark.parametrize("policy", [Typical(), RelaxedTopN(3, 0.6)], ids=lambda p: p.name)
def test_lossy_policies_read_nothing_behind_an_end(
    builds: Builds, policy: Policy, refused: int
) -> None:
    """As much as of a draft that goes no further: rows are judged before the next one is begun."""
    whole = agreed(4, refused)
    assert whole.draft_logits is not None
    short = VerifyBatch.dense(
        target_logits=whole.target_logits.view(4, 4, -1)[:, : refused + 2].contiguous(),
        draft_token_ids=whole.draft_token_ids[:, : refused + 1].contiguous(),
        positions=whole.positions,
        draft_logits=whole.draft_logits[:, : refused + 1].contiguous(),
    )
    params = SamplingTensors.stack([SamplingParams(seed=i) for i in range(4)])
    counted = []
    for batch in (whole, short):
        read, accepted = blocks_read(builds, "narrow", batch, params, policy)
        assert accepted == [refused] * 4
        counted.append(read)
    assert counted[0] == counted[1]


def test_requests_without_rows_read_nothing(builds: Builds) -> None:
    batch = agreed(4)
    starts = torch.tensor([0, 4, 4, 4, 8])
    drafts = batch.draft_token_ids.clone()
    drafts[3] = drafts[1]
    batch = evolve(
        batch,
        target_logits=batch.target_logits[:8],
        cu_num_logits=starts,
        draft_token_ids=drafts,
    )
    params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0.8) for i in range(4)])
    for kernel in ("narrow", "wide", "rowwise", "pieces"):
        read, accepted = blocks_read(builds, kernel, batch, params, Strict())
        assert accepted == [3, 0, 0, 3]
        assert read == 8 * BLOCKS


def test_a_greedy_batch_reads_no_draft_row(builds: Builds) -> None:
    batch = agreed(4)
    params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0.0) for i in range(4)])
    for policy in (Probabilistic(), Block()):
        for kernel in ("narrow", "wide", "pieces"):
            read, accepted = blocks_read(builds, kernel, batch, params, policy)
            assert accepted == [3] * 4
            assert read == 16 * BLOCKS


@pytest.mark.parametrize("num_rates", [NUM_DRAFTS, 1])
@pytest.mark.parametrize("group", [0, 1, 3])
@pytest.mark.parametrize("recipe", [{}, {"top_k": 50, "top_p": 0.9}, {"temperature": 0.0}], ids=str)
def test_rows_behind_an_end_that_synthetic_acceptance_knows_beforehand_are_not_read(
    builds: Builds, recipe: dict[str, Any], group: int, num_rates: int
) -> None:
    """Not on a guess either, and NaNs there are not reported."""
    torch.set_num_threads(1)
    seen: set[int] = set()
    for rate in (0.0, 0.8, 1.0):
        batch = agreed(12)
        batch.target_logits[NUM_DRAFTS :: NUM_DRAFTS + 1, 77] = 40.0  # filters leave no row open
        wishes = [SamplingParams(seed=i, **{"temperature": 0.8, **recipe}) for i in range(12)]
        params = SamplingTensors.stack(wishes)
        policy = Synthetic(rate ** (place + 1) for place in range(num_rates))
        kept = load_sampler("reference").verify(batch, params, policy).num_accepted
        behind = torch.arange(NUM_DRAFTS + 1) > kept[:, None]
        batch.target_logits[behind.flatten()] = torch.nan
        kernel = "wide" if group else "narrow"
        read, accepted = blocks_read(builds, kernel, batch, params, policy, group=group)
        assert accepted == kept.tolist()
        assert read == (12 + sum(accepted)) * BLOCKS
        seen |= set(accepted)
    assert seen == set(range(num_rates + 1))


@pytest.mark.parametrize(
    ("policy", "kernel"),
    [(Block(), "narrow"), (Block(), "wide"), (Block(), "rowwise"), (Fly(0.2, 1), "narrow")],
    ids=str,
)
def test_rules_that_judge_all_pairs_read_the_bonus_row_of_any_draft(
    builds: Builds, policy: Policy, kernel: str
) -> None:
    batch = agreed(1, 0)
    params = SamplingTensors.stack([SamplingParams(seed=0, temperature=0.8)])
    library = builds.of(kernel)(verify_job(batch, params, policy, None).variant)
    row = batch.target_logits[NUM_DRAFTS]
    begin, size = row.data_ptr(), row.numel() * row.itemsize
    library.set_readable(0, ctypes.c_size_t(begin), ctypes.c_size_t(begin + size))
    library.set_readable(1, ctypes.c_size_t(0), ctypes.c_size_t(0))
    library.take_num_vectors(), library.take_num_outside()
    got = run(builds.of(kernel), batch, params, policy, shape_of(kernel, batch, policy))
    assert got.num_accepted.tolist() == [0]
    in_two_launches = 2 * size // 16
    assert library.take_num_vectors() - library.take_num_outside() == in_two_launches
