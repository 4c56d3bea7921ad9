"""How a product is cut: what was fastest on an H200.

This module refuses to launch anything.
"""

from functools import cache

from attrs import evolve, frozen

COLUMNS = 64
"""Of a block: a line of 128 bytes."""

SIXTEEN = 16
"""Rows of a tile are a multiple of it."""

LEAST_TOKENS, LEAST_OWN_TOKENS = 16, 8
MOST_ROWS = 128
LEAST_ROWS = 48
"""Of a tile. With fewer, tokens are read for too few rows."""

FEW_ROWS = 64
"""A stage of fewer, of a split tile, has more columns. Such a product is small, as that with a
draft's queries, keys and values is, and leaves room for attention, which may begin beside it."""

BLOCKS = 2
LEAST_STAGES, MOST_STAGES = 3, 16
AHEAD = 3
"""Stages of weights on their way. With more, tokens come late; with fewer, memory idles."""

MEMORY, ROOM = 227 * 1024, 30 * 1024
"""Shared memory of a CTA, in bytes, and what a small product leaves of it."""

MOST_SPLITS = 4
HALF = 113 * 1024
"""Of a CTA of so many, as two then fit on a processor: clusters of four, each within a part of the
GPU, may not all find room otherwise."""

_CONSUMERS_OF_64_ROWS, _OTHER_THREADS = 128, 192
_GROUP, _WARP = 64, 32


@frozen
class Form:
    """How large a kernel is.

    Attributes:
        tokens: at most; a power of two, 16 at least.
        rows: of a tile.
        splits: CTAs that share a tile's columns; a cluster.
        blocks: of columns, in a stage.
        stages: of weights.
        token_stages: of tokens.
    """

    tokens: int
    rows: int
    splits: int
    blocks: int
    stages: int = 0
    token_stages: int = 0

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return self._consumers + _OTHER_THREADS

    @property
    def _own_tokens(self) -> int:
        """That a CTA ends, if it ends any."""
        return max(self.tokens // self.splits, LEAST_OWN_TOKENS)

    @property
    def _consumers(self) -> int:
        return -(-self.rows // _GROUP) * _CONSUMERS_OF_64_ROWS

    @property
    def memory(self) -> int:
        """Shared memory of a CTA, in bytes; the kernel asserts that it is enough."""
        row_bytes, token_bytes = (2 * COLUMNS * self.blocks * n for n in (self.rows, self.tokens))
        rings = self.stages * (row_bytes + 16) + self.token_stages * (token_bytes + 16)
        own = self._own_tokens
        lines = own * (2 * self.rows + 16)
        inbox = (2 * self.splits * own if self.splits > 1 else 16) * self._consumers
        squares = self._consumers // _WARP * 4 * own
        return -(-(rings + max(lines, inbox + squares) + 32 + 4 * self.tokens) // 128) * 128

    def units(self, size: int) -> int:
        """Stages of a CTA's columns of a tile."""
        return size // (COLUMNS * self.blocks * self.splits)

    def num_ctas(self, num_tiles: int, num_processors: int) -> int:
        """Side by side, one a processor; each takes a tile, or several in turn."""
        return min(num_tiles, num_processors // self.splits) * self.splits

    def macros(self, way: str) -> tuple[str, ...]:
        """Options of the compiler."""
        named = {
            "WAY": way,
            "TOKENS": self.tokens,
            "ROWS": self.rows,
            "SPLITS": self.splits,
            "BLOCKS": self.blocks,
            "STAGES": self.stages,
            "TOKEN_STAGES": self.token_stages,
            "AHEAD": AHEAD,
            "SHARED_BYTES": self.memory,
        }
        return tuple(f"-D{name}={number}" for name, number in named.items())


@cache
def form_of(num_tokens: int, num_rows: int, size: int, num_processors: int) -> Form | None:
    """Of a product with [num_rows, size]; None where there is no way to cut it evenly."""
    tokens = max(LEAST_TOKENS, 1 << (num_tokens - 1).bit_length())
    for splits in (1, 2, MOST_SPLITS):
        num_clusters = num_processors // splits
        rows = even_rows(num_rows, num_clusters)
        if rows is None or rows < LEAST_ROWS:
            continue
        # A split tile is its cluster's only one, and most clusters have one.
        if splits > 1 and not num_clusters < 2 * num_rows // rows <= 2 * num_clusters:
            continue
        is_small = rows < FEW_ROWS and splits > 1
        blocks = BLOCKS * (2 if is_small else 1)
        if size % (COLUMNS * blocks * splits) == 0:
            form = Form(tokens, rows, splits, blocks)
            room = ROOM if is_small else 0
            return _filled(form, HALF if splits == MOST_SPLITS else MEMORY - room)
    return None


def _filled(form: Form, memory: int) -> Form | None:
    """With as many stages as memory holds, of tokens two for three of weights at least."""
    forms = (
        evolve(form, stages=stages, token_stages=of_tokens)
        for stages in range(MOST_STAGES, LEAST_STAGES - 1, -1)
        for of_tokens in range(stages, 2 * stages // 3, -1)
    )
    return next((form for form in forms if form.memory <= memory), None)


def even_rows(num_rows: int, num_clusters: int) -> int | None:
    """The fewest rows of a tile with which clusters take equally many, and the fewest possible."""
    turns = -(-num_rows // (MOST_ROWS * num_clusters))
    shares = range(SIXTEEN, MOST_ROWS + 1, SIXTEEN)
    fit = (n for n in shares if num_rows % n == 0 and num_rows // n <= turns * num_clusters)
    return next(fit, None)
