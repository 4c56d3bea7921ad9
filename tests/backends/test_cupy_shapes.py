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


def shape_of(extent: Extent, variant: Variant) -> LaunchShape:
    by_rows, by_pieces = variant.by_rows, variant.by_pieces
    return LaunchShape.choose(extent, ROOM, by_rows, by_pieces, ends_apart=variant.ends_apart)


def chosen(num_reqs: int, variant: Variant, *, drafts: int = 3, vocab_size: int = 151_936) -> str:
    extent = Extent(num_reqs, drafts, num_reqs * (drafts + 1), vocab_size)
    return shape_of(extent, variant).launches(extent, greedy=variant.greedy)[0][0]


@pytest.mark.parametrize(
    ("variant", "kernels"),
    [
        (
            STRICT,
            {64: "wide", 88: "wide", 89: "pieces", 256: "pieces", 396: "pieces", 397: "rowwise"},
        ),
        (GREEDY, {63: "wide", 64: "greedy_pieces", 528: "greedy_pieces", 529: "narrow"}),
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
        Variant(KernelPolicy.PROBABILISTIC, BF16, BF16),
        Variant(KernelPolicy.BLOCK, BF16, BF16),
    ]
    assert all(variant.by_pieces is None for variant in others)
    assert chosen(256, STRICT, drafts=7) == "pieces"
    for drafts, vocab_size in ((8, 151_936), (0, 151_936), (3, 3_000_000)):
        assert chosen(256, STRICT, drafts=drafts, vocab_size=vocab_size) == "narrow"


def test_a_strict_request_alone_has_a_cta_that_only_finishes() -> None:
    alone, two = Extent(1, 3, 4, 151_936), Extent(2, 3, 8, 151_936)
    shape = shape_of(alone, STRICT)
    assert (shape.group, shape.num_ctas, shape.fields(alone)["share"]) == (133, 133, 9)
    assert 4 * alone.target_blocks == 132 * 9
    assert shape_of(alone, GREEDY).group == 132
    assert shape_of(alone, Variant(KernelPolicy.STRICT, BF16, filtered=True)).group == 132
    assert shape_of(two, STRICT) == LaunchShape.wide(two, ROOM)
    for room in range(2, 12):
        assert LaunchShape.wide(alone, room, ends_apart=True).num_ctas <= room


def test_pieces_are_as_large_as_there_may_be_so_many() -> None:
    extent = Extent(256, 3, 1024, 151_936)
    shape = LaunchShape.pieces(extent, 32)
    launches = shape.launches(extent, greedy=False)
    assert launches == (("pieces", 10 * 1024), ("pieces_end", 256))
    launches = shape.launches(extent, greedy=True)
    assert launches == (("greedy_pieces", 10 * 1024), ("greedy_pieces_end", 256))
    assert shape.fields(extent)["share"] == 30
    long = Extent(2, 1, 4, 2_000_000)
    assert LaunchShape.pieces(long, 32).group == MOST_PIECES
    assert LaunchShape.pieces(long, 32).fields(long)["share"] == 123


def test_what_pieces_score_has_room_among_the_control_words() -> None:
    extent = Extent(5, 3, 20, 5000, 4000)
    places = [begin for _, begin in extent.announced]
    assert [name for name, _ in extent.announced][-1] == "rivals"
    assert places == sorted(places)
    assert places[-1] + 8 * 5 * 4 * MOST_PIECES == 4 * extent.control_words


def job_of(logits: torch.Tensor, policy: Policy) -> Job:
    num_reqs = len(logits)
    batch = VerifyBatch.dense(
        target_logits=logits,
        draft_token_ids=torch.zeros(num_reqs, 1, dtype=torch.int64),
        positions=torch.zeros(num_reqs, dtype=torch.int64),
    )
    params = SamplingTensors.stack([SamplingParams(seed=i) for i in range(num_reqs)])
    return verify_job(batch, params, policy, None)


@pytest.mark.parametrize("policy", [Strict(), Probabilistic()], ids=lambda policy: policy.name)
def test_rows_of_odd_length_are_not_read_by_whole_vectors(policy: Policy) -> None:
    assert job_of(torch.zeros(2, 2, 80, dtype=BF16), policy).has_whole_vectors
    assert not job_of(torch.zeros(2, 2, 81, dtype=BF16), policy).has_whole_vectors
    assert not job_of(torch.zeros(2, 2, 84, dtype=BF16), policy).has_whole_vectors
    assert job_of(torch.zeros(2, 2, 84), policy).has_whole_vectors


def test_an_overlapping_launch_tells_the_driver_so(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    def driver(config: bytes, function: int, pointers: int, extra: None) -> int:
        *numbers, attributes, count = struct.unpack("=7I4xQQI4x", config)
        attribute = struct.unpack("=IIi60x", ctypes.string_at(attributes, 72))
        calls.append((*numbers, count, attribute, function, pointers, extra))
        return 700 if function == 13 else 0

    monkeypatch.setattr(overlap, "driver_function", lambda: driver)
    overlap.launch_overlapping(12, 256, 512, 99, 1234)
    assert calls == [(256, 1, 1, 512, 1, 1, 0, 99, 1, (6, 0, 1), 12, 1234, None)]
    with pytest.raises(RuntimeError, match="700"):
        overlap.launch_overlapping(13, 256, 512, 99, 1234)


def test_a_missing_driver_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: not found")

    overlap.driver_function.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(UnavailableError, match="libcuda"):
        overlap.launch_overlapping(12, 1, 32, 0, 0)
