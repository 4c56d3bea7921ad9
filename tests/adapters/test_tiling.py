"""Launches are cut so that a GPU's processors are busy and its memory holds them."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from attrs import evolve
from torch import Tensor

pytest.importorskip("triton")

from acceptor.adapters.few_tokens import attend, tiling
from acceptor.adapters.few_tokens.forward import HEAD_DIMS
from acceptor.adapters.few_tokens.tiling import Gpu

META = torch.device("meta")
H200 = Gpu(num_processors=132, shared_memory=227 * 1024, prefetches=True, overlaps=True)
A100 = Gpu(num_processors=108, shared_memory=163 * 1024, prefetches=True, overlaps=False)
SMALL = Gpu(num_processors=34, shared_memory=99 * 1024, prefetches=True, overlaps=False)
OTHER = Gpu(num_processors=304, shared_memory=64 * 1024, prefetches=False, overlaps=False)
GPUS = [H200, A100, SMALL, OTHER, evolve(H200, num_processors=5), evolve(H200, num_processors=148)]
TARGET = {"qkv": (6144, 4096), "output": (4096, 4096), "gate_up": (28672, 4096)}
TARGET |= {"down": (4096, 14336), "head": (128256, 4096)}
DRAFT = {"qkv": (3072, 2048), "output": (2048, 2048), "gate_up": (16384, 2048)}
DRAFT |= {"down": (2048, 8192), "head": (128256, 2048)}
ALL = [*TARGET.values(), *DRAFT.values()]


def weight(rows: int, size: int) -> Tensor:
    return torch.empty(rows, size, dtype=torch.bfloat16, device=META)


def tiling_of(
    num_tokens: int, shape: tuple[int, int], on: Gpu = H200, *, add: bool = False
) -> tiling.Tiling:
    return tiling.tiling_of(num_tokens, weight(*shape), on, add=add)


@pytest.mark.parametrize("on", GPUS)
@pytest.mark.parametrize("num_tokens", [9, 16, 24, 48, 64])
def test_a_block_has_each_row_once_and_room_for_its_stages(num_tokens: int, on: Gpu) -> None:
    parts, counts = tiling.scratch(META, on)
    for shape, add in product(ALL, (False, True)):
        found = tiling_of(num_tokens, shape, on, add=add)
        sizes = found.sizes
        assert found.num_tiles * sizes["TAKEN"] == shape[0]
        assert sizes["TAKEN"] <= sizes["ROWS"]
        assert sizes["TOKENS"] >= num_tokens
        columns = sizes["num_stages"] * sizes["DEPTH"]
        assert 2 * columns * (sizes["ROWS"] + sizes["TOKENS"]) <= on.shared_memory
        if sizes["TURNS"]:
            assert found.grid == (on.num_processors, 1)
            fair = -(-shape[0] // (sizes["ROWS"] * on.num_processors))
            assert -(-found.num_tiles // on.num_processors) == fair
        if found.num_splits > 1:
            programs = found.num_tiles * found.num_splits
            assert programs <= on.num_processors
            assert programs * sizes["ROWS"] * sizes["TOKENS"] <= len(parts)
            assert found.num_tiles <= len(counts)


def test_a_gpu_is_asked_for_its_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"multiprocessor_count": 114, "max_shared_mem": 99 * 1024}
    utils = SimpleNamespace(get_device_properties={71: given}.__getitem__)
    monkeypatch.setattr(tiling, "driver", SimpleNamespace(active=SimpleNamespace(utils=utils)))
    for capability, overlaps in (((8, 9), False), ((9, 0), True), ((12, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", {71: capability}.__getitem__)
        want = Gpu(num_processors=114, shared_memory=99 * 1024, prefetches=True, overlaps=overlaps)
        assert Gpu.of(torch.device("cuda", 71)) == want
    monkeypatch.setattr(torch.version, "hip", "7.0")
    want = evolve(want, prefetches=False, overlaps=False)
    assert Gpu.of(torch.device("cuda", 71)) == want


def test_nothing_is_fetched_ahead_where_there_is_no_ptx() -> None:
    for num_tokens in (1, 8, 64):
        assert tiling_of(num_tokens, TARGET["down"]).sizes["AHEAD"] > 0
        assert tiling_of(num_tokens, TARGET["down"], OTHER).sizes["AHEAD"] == 0


@pytest.mark.parametrize(
    ("on", "shape", "most"),
    [
        *((H200, (128, 64), tiling.MOST_TOKENS), (A100, (128, 64), tiling.MOST_TOKENS)),
        *((SMALL, (128, 64), tiling.MATRIX_TOKENS), (H200, (96, 64), tiling.MATRIX_TOKENS)),
    ],
)
def test_blocks_need_memory_and_whole_tiles(on: Gpu, shape: tuple[int, int], most: int) -> None:
    assert tiling.most_tokens([weight(*shape)], on) == most


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("programs", [1, 8, 33, 34, 128, 512])
@pytest.mark.parametrize("on", GPUS)
def test_attention_is_cut_to_what_there_is(programs: int, head_dim: int, on: Gpu) -> None:
    cut = attend.cut_of(programs, head_dim, on)
    assert cut.programs <= attend.PROGRAMS_PER_PROCESSOR
    assert cut.block * head_dim <= attend.MOST_KEYS
