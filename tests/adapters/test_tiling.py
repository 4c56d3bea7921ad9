"""Products are cut so that a GPU's processors are busy and its memory holds them."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from acceptor.adapters.few_tokens import tiling
from acceptor.adapters.few_tokens.products import matrix_kernel, vector_kernel
from acceptor.adapters.few_tokens.turns import turns_kernel

META = torch.device("meta")
TARGET = {"qkv": (6144, 4096), "output": (4096, 4096), "gate_up": (28672, 4096)}
TARGET |= {"down": (4096, 14336), "head": (128256, 4096)}
DRAFT = {"qkv": (3072, 2048), "output": (2048, 2048), "gate_up": (16384, 2048)}
DRAFT |= {"down": (2048, 8192), "head": (128256, 2048)}
ALL = [*TARGET.values(), *DRAFT.values()]


def weight(rows: int, size: int) -> Tensor:
    return torch.empty(rows, size, dtype=torch.bfloat16, device=META)


def tiling_of(
    num_tokens: int, shape: tuple[int, int], hidden_size: int = 4096, *, add: bool = False
) -> tiling.Tiling:
    return tiling.tiling_of(num_tokens, weight(*shape), hidden_size, add=add)


@pytest.mark.parametrize("num_tokens", [9, 16, 24, 48, 64])
@pytest.mark.parametrize("shape", ALL)
def test_a_block_has_each_row_once_and_room_for_its_stages(
    num_tokens: int, shape: tuple[int, int]
) -> None:
    found = tiling_of(num_tokens, shape)
    sizes = found.sizes
    assert found.num_tiles * sizes["TAKEN"] == shape[0]
    assert sizes["TAKEN"] <= sizes["ROWS"]
    assert sizes["TOKENS"] >= num_tokens
    columns = sizes["num_stages"] * sizes["DEPTH"]
    assert 2 * columns * (sizes["ROWS"] + sizes["TOKENS"]) <= tiling.MEMORY
    if found.num_splits > 1:
        assert found.num_tiles * found.num_splits <= tiling.PROCESSORS


@pytest.mark.parametrize(
    ("shape", "add", "grid"),
    [
        *((TARGET["output"], True, (64, 2)), (TARGET["down"], True, (64, 2))),
        *((DRAFT["output"], True, (32, 2)), (DRAFT["down"], True, (32, 4))),
        *((TARGET["qkv"], False, (128, 1)), (DRAFT["qkv"], False, (64, 2))),
        *((TARGET["gate_up"], False, (132, 1)), (DRAFT["gate_up"], False, (128, 1))),
        *((TARGET["head"], False, (132, 1)), (DRAFT["head"], False, (132, 1))),
    ],
)
def test_a_depth_is_split_and_rows_are_shared_while_processors_are_idle(
    shape: tuple[int, int], add: bool, grid: tuple[int, int]
) -> None:
    found = tiling_of(16, shape, add=add)
    assert found.grid == grid
    assert (found.kernel is turns_kernel) == (found.num_tiles > grid[0])


@pytest.mark.parametrize(
    ("num_rows", "add", "rows", "taken"),
    [
        *((6144, False, 64, 48), (28672, False, 128, 112), (16384, False, 128, 128)),
        *((6144, True, 64, 64), (2048, True, 64, 64)),
        *((64 * 131, False, 64, 64), (64 * 137, False, 64, 64)),
    ],
)
def test_programs_take_as_few_rows_as_leave_no_more_turns(
    num_rows: int, add: bool, rows: int, taken: int
) -> None:
    sizes = tiling_of(64, (num_rows, 512), add=add).sizes
    assert (sizes["ROWS"], sizes["TAKEN"]) == (rows, taken)


@pytest.mark.parametrize("processors", [5, 78, 108, 114, 148])
def test_programs_are_as_many_as_the_gpu_has_processors(
    monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    monkeypatch.setattr(tiling, "processors_of", lambda device: processors)  # noqa: ARG005
    parts, counts = tiling.scratch(META)
    for shape, add in product(ALL, (False, True)):
        found = tiling_of(64, shape, add=add)
        taken, rows = found.sizes["TAKEN"], found.sizes["ROWS"]
        assert found.num_tiles * taken == shape[0]
        if found.kernel is turns_kernel:
            assert found.grid == (processors, 1)
            fair = -(-shape[0] // (rows * processors))
            assert -(-found.num_tiles // processors) == fair
        if found.num_splits > 1:
            assert found.num_tiles * found.num_splits <= processors
            assert found.num_tiles * found.num_splits * rows * 64 <= len(parts)
            assert found.num_tiles <= len(counts)


def test_a_gpu_is_asked_how_many_processors_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"multiprocessor_count": 114, "max_shared_mem": 99 * 1024}
    utils = SimpleNamespace(get_device_properties={71: given}.__getitem__)
    monkeypatch.setattr(tiling, "driver", SimpleNamespace(active=SimpleNamespace(utils=utils)))
    device = torch.device("cuda", 71)
    assert (tiling.processors_of(device), tiling.memory_of(device)) == (114, 99 * 1024)
    assert (tiling.processors_of(META), tiling.memory_of(META)) == (132, tiling.MEMORY)


def test_scratch_memory_holds_the_parts_of_any_product() -> None:
    parts, counts = tiling.scratch(META)
    for shape, add in product(ALL, (False, True)):
        found = tiling_of(tiling.MOST_TOKENS, shape, add=add)
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


@pytest.mark.parametrize(
    ("memory", "shape", "stages"),
    [
        *((tiling.MEMORY, TARGET["output"], 7), (tiling.MEMORY, TARGET["gate_up"], 4)),
        *((163 * 1024, TARGET["output"], 5), (163 * 1024, TARGET["gate_up"], 2)),
    ],
)
def test_a_block_has_as_many_stages_as_its_memory_holds(
    monkeypatch: pytest.MonkeyPatch, memory: int, shape: tuple[int, int], stages: int
) -> None:
    monkeypatch.setattr(tiling, "memory_of", lambda device: memory)  # noqa: ARG005
    sizes = tiling_of(64, shape).sizes
    assert sizes["num_stages"] == stages
    assert 2 * stages * sizes["DEPTH"] * (sizes["ROWS"] + 64) <= memory


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
