"""Products are cut so that a GPU's processors are busy and its memory holds them."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from acceptor.adapters.few_tokens import tiling
from acceptor.adapters.few_tokens.products import matrix_kernel, vector_kernel

META = torch.device("meta")
TARGET = {"qkv": (6144, 4096), "output": (4096, 4096), "gate_up": (28672, 4096)}
TARGET |= {"down": (4096, 14336), "head": (128256, 4096)}
DRAFT = {"qkv": (3072, 2048), "output": (2048, 2048), "gate_up": (16384, 2048)}
DRAFT |= {"down": (2048, 8192), "head": (128256, 2048)}
ALL = [*TARGET.values(), *DRAFT.values()]


def weight(rows: int, size: int) -> Tensor:
    return torch.empty(rows, size, dtype=torch.bfloat16, device=META)


def tiling_of(num_tokens: int, shape: tuple[int, int], hidden_size: int = 4096) -> tiling.Tiling:
    return tiling.tiling_of(num_tokens, weight(*shape), hidden_size, add=False)


@pytest.mark.parametrize("num_tokens", [9, 16, 24, 48, 64])
@pytest.mark.parametrize("shape", ALL)
def test_a_block_has_each_row_once_and_room_for_its_stages(
    num_tokens: int, shape: tuple[int, int]
) -> None:
    found = tiling_of(num_tokens, shape)
    sizes = found.sizes
    assert found.num_tiles * sizes["ROWS"] == shape[0]
    assert sizes["TOKENS"] >= num_tokens
    columns = sizes["num_stages"] * sizes["DEPTH"]
    assert 2 * columns * (sizes["ROWS"] + sizes["TOKENS"]) <= tiling.MEMORY
    if found.num_splits > 1:
        assert found.num_tiles * found.num_splits <= tiling.PROCESSORS


@pytest.mark.parametrize(
    ("shape", "splits"),
    [
        *((TARGET["qkv"], 1), (TARGET["output"], 2), (TARGET["down"], 2), (TARGET["gate_up"], 1)),
        *((DRAFT["qkv"], 2), (DRAFT["output"], 2), (DRAFT["down"], 4), (DRAFT["head"], 1)),
    ],
)
def test_a_depth_is_split_while_processors_are_idle(shape: tuple[int, int], splits: int) -> None:
    assert tiling_of(16, shape).num_splits == splits


def test_scratch_memory_holds_the_parts_of_any_product() -> None:
    parts, counts = tiling.scratch(META)
    for shape in ALL:
        found = tiling_of(tiling.MOST_TOKENS, shape)
        if found.num_splits > 1:
            programs = found.num_tiles * found.num_splits
            assert programs * found.sizes["ROWS"] * found.sizes["TOKENS"] <= len(parts)
            assert found.num_tiles <= len(counts)


@pytest.mark.parametrize(("num_tokens", "stages"), [(1, 6), (2, 6), (3, 3), (4, 3), (8, 3)])
def test_two_programs_of_few_tokens_share_a_processor(num_tokens: int, stages: int) -> None:
    sizes = tiling_of(num_tokens, TARGET["down"]).sizes
    assert sizes["num_stages"] == stages
    columns = (stages - 1) * sizes["PARTS"] * sizes["DEPTH"]
    assert 2 * columns * (sizes["ROWS"] + sizes["TOKENS"]) <= tiling.MEMORY // 2


@pytest.mark.parametrize(("num_tokens", "stages"), [(16, 4), (32, 4), (64, 3)])
def test_a_block_has_as_many_stages_as_its_memory_holds(num_tokens: int, stages: int) -> None:
    assert tiling_of(num_tokens, TARGET["output"]).sizes["num_stages"] == stages


def test_one_token_of_a_small_model_needs_no_tensor_cores() -> None:
    assert tiling_of(1, DRAFT["down"], 2048).kernel is vector_kernel
    assert tiling_of(1, TARGET["down"], 4096).kernel is matrix_kernel


@pytest.mark.parametrize(
    ("memory", "shape", "most"),
    [
        (tiling.MEMORY, (128, 64), tiling.MOST_TOKENS),
        (163 * 1024, (128, 64), tiling.MOST_TOKENS),
        (99 * 1024, (128, 64), tiling.MATRIX_TOKENS),
        (tiling.MEMORY, (96, 64), tiling.MATRIX_TOKENS),
    ],
)
def test_blocks_need_memory_and_whole_tiles(
    monkeypatch: pytest.MonkeyPatch, memory: int, shape: tuple[int, int], most: int
) -> None:
    monkeypatch.setattr(tiling, "memory_of", lambda device: memory)  # noqa: ARG005
    assert tiling.most_tokens([weight(*shape)]) == most
