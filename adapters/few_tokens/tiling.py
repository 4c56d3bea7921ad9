"""Chooses a product's kernel and the size of its programs from a GPU's properties.

All other numbers are those that were fastest on an H200.
"""

from typing import Any, NamedTuple

import torch
from attrs import frozen
from torch import Tensor
from triton import next_power_of_2
from triton.runtime import driver

from .products import block_kernel, matrix_kernel


@frozen(kw_only=True)
class Gpu:
    """The properties of a GPU.

    Attributes:
        num_processors: how many programs run at once if each needs a processor's memory.
        shared_memory: a program's largest, in bytes.
        prefetches: whether it runs PTX, which prefetches weights.
        overlaps: whether a kernel may start while the previous one still runs (programmatic
            dependent launch). Such a kernel waits, in every program that writes, before it touches
            what an earlier one wrote, so it ends after all earlier ones.
    """

    num_processors: int
    shared_memory: int
    prefetches: bool
    overlaps: bool

    @classmethod
    def of(cls, device: torch.device) -> "Gpu":
        """The properties of a device."""
        index = torch.cuda.current_device() if device.index is None else device.index
        found = driver.active.utils.get_device_properties(index)
        capability, is_cuda = torch.cuda.get_device_capability(index), torch.version.hip is None
        return cls(
            num_processors=found["multiprocessor_count"],
            shared_memory=found["max_shared_mem"],
            prefetches=is_cuda,
            overlaps=is_cuda and capability >= (9, 0),
        )

    @property
    def launch_options(self) -> dict[str, bool]:
        """The launch options by which a kernel starts early."""
        return {"launch_pdl": True} if self.overlaps else {}


MOST_TOKENS = 64
"""The most tokens of a forward. With more, cuBLAS multiplies: larger blocks were not measured."""

MATRIX_TOKENS = 8
MATRIX_ROWS = 16
MATRIX_WARPS = 4
MATRIX_DEPTH = 256
MATRIX_STAGES = 4
"""The most stages: so few that two programs share a processor's memory."""

MATRIX_AHEAD = 512
FEWEST_TOKENS = 2
FEWEST_DEPTH = 128
FEWEST_STAGES = 6
"""Sizes of `matrix_kernel` for so few tokens that more and shorter stages fit."""

BLOCK_TOKENS = 16
BLOCK_AHEAD = 256
LEAST_STAGES = 2
LEAST_DEPTH = 512
"""Columns of a program; with fewer, a split costs more than it saves."""


@frozen
class Block:
    """The size of a program of `block_kernel`, which has a processor to itself.

    Attributes:
        stages: the most that are used; fewer if memory does not hold them.
    """

    rows: int
    depth: int
    warps: int
    stages: int


NARROW = Block(rows=64, depth=128, warps=4, stages=7)
SHORT = Block(rows=64, depth=64, warps=4, stages=14)
ADDED = Block(rows=64, depth=128, warps=4, stages=5)
WIDE = Block(rows=128, depth=128, warps=8, stages=4)
TALL = Block(rows=256, depth=64, warps=4, stages=4)
"""A taller block is for matrices with more than one lower tile per processor: tokens are then read
for fewer tiles. `SHORT`, `TALL` and, for products added to hidden states, `ADDED` are for many
tokens, which take as long to read as weights."""

MANY_TOKENS = 64
SHARE = 16
"""The rows that a tile takes are a multiple of this."""


class Tiling(NamedTuple):
    """A product's kernel, its grid, and how large its programs are."""

    kernel: Any
    grid: tuple[int, int]
    """Tiles, or programs that take several, and the programs that share each tile's depth."""
    sizes: dict[str, int]


def most_tokens(weights: list[Tensor], gpu: Gpu) -> int:
    """The most tokens of a forward through these matrices."""
    stages = (_stages(one, MOST_TOKENS, gpu, takes_turns=True) for one in (SHORT, WIDE, TALL))
    even = not any(len(weight) % NARROW.rows for weight in weights)
    return MOST_TOKENS if even and min(stages) >= LEAST_STAGES else MATRIX_TOKENS


def scratch(device: torch.device, gpu: Gpu) -> tuple[Tensor, Tensor]:
    """Parts and counts for any product; see `block_kernel`."""
    parts = torch.empty(gpu.num_processors * NARROW.rows * MOST_TOKENS, device=device)
    return parts, torch.zeros(gpu.num_processors, dtype=torch.int32, device=device)


def tiling_of(num_tokens: int, weight: Tensor, gpu: Gpu, *, add: bool) -> Tiling:
    """The tiling of a product with weight [num_rows, size], perhaps added to hidden states."""
    if num_tokens <= MATRIX_TOKENS:
        return _matrix(next_power_of_2(num_tokens), len(weight), gpu)
    return _block(max(BLOCK_TOKENS, next_power_of_2(num_tokens)), weight, gpu, add=add)


def _matrix(num_tokens: int, num_rows: int, gpu: Gpu) -> Tiling:
    fewest = num_tokens <= FEWEST_TOKENS
    depth = FEWEST_DEPTH if fewest else MATRIX_DEPTH
    # Stages hold weights and tokens; one stage is in registers.
    num_bytes = 2 * MATRIX_WARPS * depth * (MATRIX_ROWS + num_tokens)
    stages = 1 + gpu.shared_memory // (2 * num_bytes)
    sizes = {
        "TOKENS": num_tokens,
        "ROWS": MATRIX_ROWS,
        "DEPTH": depth,
        "PARTS": MATRIX_WARPS,
        "AHEAD": MATRIX_AHEAD if gpu.prefetches else 0,
        "num_warps": MATRIX_WARPS,
        "num_stages": min(FEWEST_STAGES if fewest else MATRIX_STAGES, stages),
    }
    return Tiling(matrix_kernel, (num_rows // MATRIX_ROWS, 1), sizes)


def _block(num_tokens: int, weight: Tensor, gpu: Gpu, *, add: bool) -> Tiling:
    num_rows, size = weight.shape
    processors = gpu.num_processors
    many = (ADDED if add else SHORT, WIDE, TALL)
    block, *taller = many if num_tokens >= MANY_TOKENS else (NARROW, WIDE)
    for one in taller:
        if num_rows // block.rows > processors and num_rows % one.rows == 0:
            block = one
    num_turns = 1 if add else -(-num_rows // (block.rows * processors))
    num_splits = _num_splits(processors // (num_rows // block.rows), size // LEAST_DEPTH)
    most_tiles = num_turns * (processors // num_splits)
    # Where products are added to hidden states, each tile leaves sums of squares to read.
    taken = block.rows if add else _even_share(num_rows, block.rows, most_tiles)
    sizes = {
        "TOKENS": num_tokens,
        "ROWS": block.rows,
        "TAKEN": taken,
        "DEPTH": block.depth,
        "SPLITS": num_splits,
        "TURNS": num_turns > 1,
        "FLIPS": block is TALL,
        "AHEAD": BLOCK_AHEAD if gpu.prefetches else 0,
        "num_warps": block.warps,
        "num_stages": _stages(block, num_tokens, gpu, takes_turns=num_turns > 1),
    }
    programs = num_rows // taken if num_turns == 1 else min(num_rows // taken, processors)
    return Tiling(block_kernel, (programs, num_splits), sizes)


def _num_splits(num_each: int, most: int) -> int:
    """How many programs share a tile's depth: a power of two, at most `num_each` and `most`."""
    return 1 << max(min(num_each, most), 1).bit_length() - 1


def _even_share(num_rows: int, most_rows: int, most_tiles: int) -> int:
    """The fewest rows, at most `most_rows`, that cut a matrix into equal tiles; else most_rows."""
    shares = range(SHARE, most_rows, SHARE)
    fit = (rows for rows in shares if num_rows % rows == 0 and num_rows // rows <= most_tiles)
    return next(fit, most_rows)


def _stages(block: Block, num_tokens: int, gpu: Gpu, *, takes_turns: bool) -> int:
    """How many blocks of weights and tokens shared memory holds beside a finished tile."""
    room = gpu.shared_memory - (4 * block.rows * num_tokens if takes_turns else 0)
    return min(block.stages, room // (2 * block.depth * (block.rows + num_tokens)))
