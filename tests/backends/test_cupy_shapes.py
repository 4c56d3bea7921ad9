"""Which kernels a batch is given to, by its size, and what a launch of them is."""

import ctypes
import struct

import pytest
import torch

from acceptor.backends.cupy_backend import overlap
from acceptor.backends.cupy_backend.arguments import Job, verify_job
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.backends.cupy_backend.variant import KernelPolicy, Variant
from acceptor.backends.cupy_backend.workspace import MOST_PIECES, Extent
from acceptor.core import (
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)
from acceptor.core.errors import UnavailableError

ROOM = 264
BF16 = torch.bfloat16
STRICT, GREEDY = Variant(KernelPolicy.STRICT, BF16), Variant(KernelPolicy.STRICT, BF16, greedy=True)
PAIRS = Variant(KernelPolicy.PROBABILISTIC, BF16, BF16)
FILTERED_PAIRS = Variant(KernelPolicy.PROBABILISTIC, BF16, BF16, filtered=True)


def shape_of(extent: Extent, variant: Variant) -> LaunchShape:
    by_rows, by_pieces = variant.by_rows, variant.by_pieces
    return LaunchShape.choose(extent, ROOM, by_rows, by_pieces, relief=variant.relief)


def chosen(num_reqs: int, variant: Variant, *, drafts: int = 3, vocab_size: int = 151_936) -> str:
    draft_vocab_size = 0 if variant.draft is None else vocab_size
    extent = Extent(num_reqs, drafts, num_reqs * (drafts + 1), vocab_size, draft_vocab_size)
    return shape_of(extent, variant).launches(extent, variant.pieces)[0][0]


@pytest.mark.parametrize(
    ("variant", "kernels"),
    [
        (
            STRICT,
            {63: "wide", 64: "pieces", 256: "pieces", 792: "pieces", 793: "rowwise"},
        ),
        (GREEDY, {7: "wide", 8: "greedy_pieces", 528: "greedy_pieces", 529: "narrow"}),
        (PAIRS, {88: "wide", 89: "pair_pieces", 1056: "pair_pieces", 1057: "narrow"}),
        (
            FILTERED_PAIRS,
            {
                132: "wide",
                133: "pair_pieces",
                198: "pair_pieces",
                199: "narrow",
                264: "narrow",
                265: "pair_pieces",
                1056: "pair_pieces",
                1057: "narrow",
            },
        ),
    ],
)
def test_batches_of_some_sizes_are_read_by_pieces(
    variant: Variant, kernels: dict[int, str]
) -> None:
    assert {num_reqs: chosen(num_reqs, variant) for num_reqs in kernels} == kernels


def test_other_batches_are_not() -> None:
    others = [
        Variant(KernelPolicy.STRICT, BF16, filtered=True),
        Variant(KernelPolicy.STRICT, BF16, adjusted=True),
        Variant(KernelPolicy.PROBABILISTIC, BF16),
        Variant(KernelPolicy.PROBABILISTIC, BF16, BF16, adjusted=True),
        Variant(KernelPolicy.BLOCK, BF16, BF16),
    ]
    assert all(variant.by_pieces is None for variant in others)
    assert chosen(256, STRICT, drafts=7) == "pieces"
    for drafts, vocab_size in ((8, 151_936), (0, 151_936), (3, 3_000_000)):
        assert chosen(256, STRICT, drafts=drafts, vocab_size=vocab_size) == "narrow"
        assert chosen(256, PAIRS, drafts=drafts, vocab_size=vocab_size) == "narrow"
    narrower = Extent(256, 3, 1024, 151_936, 32_000)
    assert not shape_of(narrower, PAIRS).by_pieces


@pytest.mark.parametrize(
    ("num_reqs", "group", "share"), [(1, 133, 9), (2, 120, 10), (4, 64, 19), (8, 33, 38)]
)
def test_the_last_cta_of_few_requests_reads_nothing(num_reqs: int, group: int, share: int) -> None:
    extent = Extent(num_reqs, 3, 4 * num_reqs, 151_936)
    for variant in (STRICT, GREEDY):
        shape = LaunchShape.wide(extent, ROOM, relief=variant.relief)
        assert (shape.group, shape.num_ctas) == (group, group * num_reqs)
        assert shape.fields(extent)["share"] == share
    assert (group - 1) * share >= 4 * extent.target_blocks
    assert shape_of(extent, Variant(KernelPolicy.STRICT, BF16, filtered=True)).share == 0
    assert shape_of(extent, Variant(KernelPolicy.SYNTHETIC, BF16)).share == 0
    for room in range(num_reqs, 140):
        assert LaunchShape.wide(extent, room, relief=0).num_ctas <= room


@pytest.mark.parametrize(("num_reqs", "share"), [(16, 75), (24, 112), (32, 153), (63, 306)])
def test_the_last_cta_of_more_strict_requests_reads_less(num_reqs: int, share: int) -> None:
    extent = Extent(num_reqs, 3, 4 * num_reqs, 151_936)
    shape = shape_of(extent, STRICT)
    assert shape.group == ROOM // num_reqs
    assert shape.fields(extent)["share"] == share
    assert shape_of(extent, Variant(KernelPolicy.BLOCK, BF16, BF16)).share == 0
    few_blocks = Extent(num_reqs, 3, 4 * num_reqs, 4096)
    assert shape_of(few_blocks, STRICT).share == 0


def test_pieces_are_as_large_as_there_may_be_so_many() -> None:
    extent = Extent(256, 3, 1024, 151_936)
    shape = LaunchShape.pieces(extent, 32)
    launches = shape.launches(extent, "pieces")
    assert launches == (("pieces", (10 * 1024, 1, 1)), ("pieces_end", (256, 1, 1)))
    launches = shape.launches(extent, "greedy_pieces")
    assert launches == (("greedy_pieces", (10, 256, 4)), ("greedy_pieces_end", (256, 1, 1)))
    assert shape.fields(extent)["share"] == 30
    pairs = Extent(256, 3, 1024, 151_936, 151_936)
    launches = LaunchShape.pieces(pairs, 32).launches(pairs, "pair_pieces")
    assert launches == (("pair_pieces", (10 * 7 * 256, 1, 1)), ("pair_pieces_end", (256, 1, 1)))
    assert LaunchShape.pieces(pairs, 1).group == pairs.most_pieces < MOST_PIECES // 2
    long = Extent(2, 1, 4, 2_000_000)
    assert LaunchShape.pieces(long, 32).group == MOST_PIECES
    assert LaunchShape.pieces(long, 32).fields(long)["share"] == 123


def test_pieces_that_there_is_no_room_for_are_refused() -> None:
    most = MOST_PIECES * 128 * 512
    assert LaunchShape.pieces(Extent(2, 1, 4, most), 32).group == MOST_PIECES
    with pytest.raises(UnavailableError, match="expected at most 4096 blocks"):
        LaunchShape.pieces(Extent(2, 1, 4, most + 1), 32)
    with pytest.raises(UnavailableError, match="expected at most 1792 blocks"):
        LaunchShape.pieces(Extent(2, 1, 4, 1_000_000, 1_000_000), 32)
    assert LaunchShape.pieces(Extent(65_535, 1, 131_070, 512), 32).group == 1
    with pytest.raises(UnavailableError, match="expected at most 65535 of a batch"):
        LaunchShape.pieces(Extent(65_536, 1, 131_072, 512), 32)


def test_more_requests_than_a_grid_has_are_not_read_by_pieces() -> None:
    """However many CTAs a device has room for."""
    for variant in (GREEDY, STRICT, PAIRS):
        by_pieces = variant.by_pieces
        for num_reqs, are in ((65_535, True), (65_536, False), (70_000, False)):
            draft_vocab = 0 if variant.draft is None else 1024
            extent = Extent(num_reqs, 3, 4 * num_reqs, 1024, draft_vocab)
            shape = LaunchShape.choose(extent, 66_000, variant.by_rows, by_pieces)
            assert shape.by_pieces is are
            launches = shape.launches(extent, variant.pieces)
            assert all(max(grid[1:]) <= 65_535 for _, grid in launches)


def test_what_pieces_score_has_room_among_the_control_words() -> None:
    extent = Extent(5, 3, 20, 5000, 4000)
    places = [begin for _, begin in extent.announced]
    assert [name for name, _ in extent.announced][-1] == "rivals"
    assert places == sorted(places)
    assert places[-1] + 8 * 5 * 4 * MOST_PIECES == 4 * extent.control_words


def job_of(logits: torch.Tensor, policy: Policy, draft_logits: torch.Tensor | None = None) -> Job:
    num_reqs = len(logits)
    batch = VerifyBatch.dense(
        target_logits=logits,
        draft_token_ids=torch.zeros(num_reqs, 1, dtype=torch.int64),
        positions=torch.zeros(num_reqs, dtype=torch.int64),
        draft_logits=draft_logits,
    )
    params = SamplingTensors.stack([SamplingParams(seed=i) for i in range(num_reqs)])
    return verify_job(batch, params, policy, None)


@pytest.mark.parametrize("policy", [Strict(), Probabilistic()], ids=lambda policy: policy.name)
def test_rows_of_odd_length_are_not_read_by_whole_vectors(policy: Policy) -> None:
    assert job_of(torch.zeros(2, 2, 80, dtype=BF16), policy).has_whole_vectors
    assert not job_of(torch.zeros(2, 2, 81, dtype=BF16), policy).has_whole_vectors
    assert not job_of(torch.zeros(2, 2, 84, dtype=BF16), policy).has_whole_vectors
    assert job_of(torch.zeros(2, 2, 84), policy).has_whole_vectors


def test_draft_rows_are_read_by_whole_vectors_too() -> None:
    target, aligned = torch.zeros(2, 2, 80, dtype=BF16), torch.zeros(2, 1, 88, dtype=BF16)
    for draft, whole in ((aligned[..., :80], True), (aligned[..., 4:84], False)):
        assert job_of(target, Probabilistic(), draft).has_whole_vectors is whole
        assert job_of(target, Strict(), draft).has_whole_vectors


def test_an_overlapping_launch_tells_the_driver_so(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    def driver(config: bytes, function: int, pointers: int, extra: None) -> int:
        *numbers, attributes, count = struct.unpack("=7I4xQQI4x", config)
        attribute = struct.unpack("=IIi60x", ctypes.string_at(attributes, 72))
        calls.append((*numbers, count, attribute, function, pointers, extra))
        return 700 if function == 13 else 0

    monkeypatch.setattr(overlap, "driver_function", lambda: driver)
    overlap.launch_overlapping(12, (256, 5, 4), 512, 640, 99, 1234)
    assert calls == [(256, 5, 4, 512, 1, 1, 640, 99, 1, (6, 0, 1), 12, 1234, None)]
    with pytest.raises(RuntimeError, match="700"):
        overlap.launch_overlapping(13, (256, 1, 1), 512, 640, 99, 1234)


def test_a_missing_driver_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: not found")

    overlap.driver_function.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(UnavailableError, match="libcuda"):
        overlap.launch_overlapping(12, (1, 1, 1), 32, 0, 0, 0)
