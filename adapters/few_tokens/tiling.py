"""Which kernel takes a product, and how large its programs are: what was fastest on an H200.

This module refuses to launch anything.
"""

from functools import cache
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from triton import next_power_of_2
from triton.runtime import driver

from .blocks import block_kernel
from .products import matrix_kernel, vector_kernel

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
"""Of an H200. A depth is split as long as each has one program at most."""

LEAST_STEPS = 4
"""Of a program through its columns; with fewer, a split is not worth adding its parts up."""

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


NARROW = Block(rows=64, depth=256, warps=4, stages=4)
WIDE = Block(rows=128, depth=128, warps=8, stages=4)
"""For matrices with a tile for each processor and more: tokens are read for half as many tiles."""


@frozen
class Tiling:
    """A product's kernel, how many programs it has, and how large they are."""

    kernel: Any
    num_tiles: int
    sizes: dict[str, int]
    num_splits: int = 1


def most_tokens(weights: list[Tensor]) -> int:
    """Of a forward through these matrices."""
    memory = memory_of(weights[0].device)
    fit = all(_stages(block, MOST_TOKENS, memory) >= LEAST_STAGES for block in (NARROW, WIDE))
    even = not any(len(weight) % NARROW.rows for weight in weights)
    return MOST_TOKENS if fit and even else MATRIX_TOKENS


def scratch(device: torch.device) -> tuple[Tensor, Tensor]:
    """Parts and counts for any product; see `block_kernel`."""
    parts = torch.empty(PROCESSORS * NARROW.rows * MOST_TOKENS, device=device)
    return parts, torch.zeros(PROCESSORS, dtype=torch.int32, device=device)


def tiling_of(num_tokens: int, weight: Tensor, hidden_size: int, *, add: bool) -> Tiling:
    """Of a product of so many tokens, in a model with hidden states of this size."""
    if num_tokens == 1 and hidden_size <= VECTOR_SIZE:
        return _vector(len(weight), add=add)
    if num_tokens <= MATRIX_TOKENS:
        return _matrix(next_power_of_2(num_tokens), weight)
    return _block(max(BLOCK_TOKENS, next_power_of_2(num_tokens)), weight)


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


def _block(num_tokens: int, weight: Tensor) -> Tiling:
    num_rows, size = weight.shape
    many = num_rows // NARROW.rows > PROCESSORS
    block = WIDE if many and num_rows % WIDE.rows == 0 else NARROW
    num_tiles, num_splits = num_rows // block.rows, 1
    most_splits = min(PROCESSORS // num_tiles, size // (LEAST_STEPS * block.depth))
    while 2 * num_splits <= most_splits:
        num_splits *= 2
    sizes = {
        "TOKENS": num_tokens,
        "ROWS": block.rows,
        "DEPTH": block.depth,
        "SPLITS": num_splits,
        "AHEAD": BLOCK_AHEAD,
        "num_warps": block.warps,
        "num_stages": _stages(block, num_tokens, memory_of(weight.device)),
    }
    return Tiling(block_kernel, num_tiles, sizes, num_splits)


def _stages(block: Block, num_tokens: int, memory: int) -> int:
    """Of weights and tokens that so many bytes hold."""
    return min(block.stages, memory // (2 * block.depth * (block.rows + num_tokens)))


@cache
def memory_of(device: torch.device) -> int:
    """Shared memory of a program, in bytes."""
    if device.type != "cuda":
        return MEMORY
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(driver.active.utils.get_device_properties(index)["max_shared_mem"])
