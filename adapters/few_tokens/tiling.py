"""Which kernel takes a product, and how large its programs are."""

from functools import cache
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from triton import next_power_of_2
from triton.runtime import driver

from .blocks import block_kernel
from .products import matrix_kernel, vector_kernel
from .turns import turns_kernel

MOST_TOKENS = 64
"""Of a forward. With more, cuBLAS multiplies: larger blocks have not been measured."""

VECTOR_SIZE = 2048
"""Of hidden states. With larger ones, tensor cores were faster for one token, too."""

VECTOR_ROWS = 8
VECTOR_WARPS = 4
VECTOR_WARPS_TO_ADD = 8
MATRIX_TOKENS = 8
MATRIX_ROWS = 16
MATRIX_WARPS = 4
MATRIX_DEPTH = 256
MATRIX_STAGES = 4
"""At most; as many as let two programs share a processor's memory."""

MATRIX_AHEAD = 512
FEWEST_TOKENS = 2
FEWEST_DEPTH = 128
FEWEST_STAGES = 6
"""Of `matrix_kernel`, for as few tokens as leave room for more and shorter stages."""

BLOCK_TOKENS = 16
BLOCK_AHEAD = 256
PROCESSORS = 132
"""Of an H200; other GPUs are asked. A depth is split as long as each has one program at most."""

LEAST_DEPTH = 1024
"""Columns of a program; with fewer, a split is not worth adding its parts up."""

LEAST_STAGES = 2
MEMORY = 227 * 1024
"""Shared memory of a program on an H200, in bytes; other GPUs are asked."""


@frozen
class Block:
    """How large a program of `block_kernel` is: it has a processor to itself.

    Attributes:
        stages: at most; as many as its memory holds.
    """

    rows: int
    depth: int
    warps: int
    stages: int


NARROW = Block(rows=64, depth=128, warps=4, stages=7)
WIDE = Block(rows=128, depth=128, warps=8, stages=4)
"""For matrices with a tile for each processor and more: tokens are read for half as many tiles."""

SHARE = 16
"""Rows that a tile takes are a multiple of it."""


@frozen
class Tiling:
    """A product's kernel, how many programs it has, and how large they are.

    Attributes:
        num_splits: programs that share a tile's depth.
        most_programs: side by side, as each takes several tiles; None: each tile has its own.
    """

    kernel: Any
    num_tiles: int
    sizes: dict[str, int]
    num_splits: int = 1
    most_programs: int | None = None

    @property
    def grid(self) -> tuple[int, int]:
        """Of programs."""
        return min(self.num_tiles, self.most_programs or self.num_tiles), self.num_splits


def most_tokens(weights: list[Tensor]) -> int:
    """Of a forward through these matrices."""
    memory = memory_of(weights[0].device)
    fit = all(
        _stages(block, MOST_TOKENS, memory, takes_turns=True) >= LEAST_STAGES
        for block in (NARROW, WIDE)
    )
    even = not any(len(weight) % NARROW.rows for weight in weights)
    return MOST_TOKENS if fit and even else MATRIX_TOKENS


def scratch(device: torch.device) -> tuple[Tensor, Tensor]:
    """Parts and counts for any product; see `block_kernel`."""
    processors = processors_of(device)
    parts = torch.empty(processors * NARROW.rows * MOST_TOKENS, device=device)
    return parts, torch.zeros(processors, dtype=torch.int32, device=device)


def tiling_of(num_tokens: int, weight: Tensor, hidden_size: int, *, add: bool) -> Tiling:
    """Of a product of so many tokens, in a model with hidden states of this size."""
    if num_tokens == 1 and hidden_size <= VECTOR_SIZE:
        return _vector(len(weight), add=add)
    if num_tokens <= MATRIX_TOKENS:
        return _matrix(next_power_of_2(num_tokens), weight)
    return _block(max(BLOCK_TOKENS, next_power_of_2(num_tokens)), weight, add=add)


def _vector(num_rows: int, *, add: bool) -> Tiling:
    warps = VECTOR_WARPS_TO_ADD if add else VECTOR_WARPS
    sizes = {"ROWS": VECTOR_ROWS, "DEPTH": 256 * warps, "num_warps": warps}
    return Tiling(vector_kernel, num_rows // VECTOR_ROWS, sizes)


def _matrix(num_tokens: int, weight: Tensor) -> Tiling:
    fewest = num_tokens <= FEWEST_TOKENS
    depth = FEWEST_DEPTH if fewest else MATRIX_DEPTH
    # Weights and tokens; one stage is in registers.
    num_bytes = 2 * MATRIX_WARPS * depth * (MATRIX_ROWS + num_tokens)
    stages = 1 + memory_of(weight.device) // (2 * num_bytes)
    sizes = {
        "TOKENS": num_tokens,
        "ROWS": MATRIX_ROWS,
        "DEPTH": depth,
        "PARTS": MATRIX_WARPS,
        "AHEAD": MATRIX_AHEAD,
        "num_warps": MATRIX_WARPS,
        "num_stages": min(FEWEST_STAGES if fewest else MATRIX_STAGES, stages),
    }
    return Tiling(matrix_kernel, len(weight) // MATRIX_ROWS, sizes)


def _block(num_tokens: int, weight: Tensor, *, add: bool) -> Tiling:
    num_rows, size = weight.shape
    processors = processors_of(weight.device)
    many = num_rows // NARROW.rows > processors
    block = WIDE if many and num_rows % WIDE.rows == 0 else NARROW
    num_turns = 1 if add else -(-num_rows // (block.rows * processors))
    num_splits = _num_splits(processors // (num_rows // block.rows), size // LEAST_DEPTH)
    most_tiles = num_turns * (processors // num_splits)
    # More tiles of what is added to hidden states leave more sums of squares to read.
    taken = block.rows if add else _even_share(num_rows, block.rows, most_tiles)
    sizes = {
        "TOKENS": num_tokens,
        "ROWS": block.rows,
        "TAKEN": taken,
        "DEPTH": block.depth,
        "AHEAD": BLOCK_AHEAD,
        "num_warps": block.warps,
        "num_stages": _stages(
            block, num_tokens, memory_of(weight.device), takes_turns=num_turns > 1
        ),
    }
    if num_turns > 1:
        return Tiling(turns_kernel, num_rows // taken, sizes, most_programs=processors)
    return Tiling(block_kernel, num_rows // taken, sizes | {"SPLITS": num_splits}, num_splits)


def _num_splits(num_each: int, most: int) -> int:
    """A power of two; `num_each` is for how many programs of a tile there are processors."""
    num_splits = 1
    while 2 * num_splits <= min(num_each, most):
        num_splits *= 2
    return num_splits


def _even_share(num_rows: int, most_rows: int, most_tiles: int) -> int:
    """The fewest rows that cut a matrix into equal tiles, no more than so many; else most_rows."""
    shares = range(SHARE, most_rows, SHARE)
    fit = (rows for rows in shares if num_rows % rows == 0 and num_rows // rows <= most_tiles)
    return next(fit, most_rows)


def _stages(block: Block, num_tokens: int, memory: int, *, takes_turns: bool) -> int:
    """Of weights and tokens that so many bytes hold, perhaps beside a tile that ends."""
    room = memory - (4 * block.rows * num_tokens if takes_turns else 0)
    return min(block.stages, room // (2 * block.depth * (block.rows + num_tokens)))


def memory_of(device: torch.device) -> int:
    """Shared memory of a program, in bytes."""
    return _properties_of(device)["max_shared_mem"] if device.type == "cuda" else MEMORY


def processors_of(device: torch.device) -> int:
    """How many work side by side."""
    return _properties_of(device)["multiprocessor_count"] if device.type == "cuda" else PROCESSORS


@cache
def _properties_of(device: torch.device) -> dict[str, int]:
    index = torch.cuda.current_device() if device.index is None else device.index
    found: dict[str, int] = driver.active.utils.get_device_properties(index)
    return found
