"""The workspace: a few numbers per block of 512 logits, and nothing as large as the vocabulary.

Its front is where programs meet; it is zero between calls. This module refuses to hold a
workspace: the caller does, or nobody.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...core.race import BLOCK_SIZE
from .arguments import NO_SCRATCH, Scratch

MAX_CANDIDATES = 1024
"""Logits per row that may be listed as possible thresholds; more are searched through."""

COUNT_COPIES = 8
"""Logits of a row are counted in so many places, as additions to one place wait for each other."""

MAX_COPIED_ROWS = 16
"""So many rows are; further ones are counted in one place each."""

MIN_FRONT = 32768
"""The front is so long at least, so that batches of other shapes leave it alone."""

INT_PARTS = frozenset(
    {"arrivals", "verdicts", "progress", "rivals", "listing", "tokens", "open_rows"}
)

Place = Callable[[int, int, torch.dtype], Any]
"""Makes something of a part's first word, its number of words and what they are."""


@frozen(slots=False)
class Layout:
    """How many words of 4 bytes a call needs, and where they lie.

    Attributes:
        num_reqs: requests.
        num_rows: rows of statistics per request: the target's and, if they are read, the draft's.
        num_blocks: blocks of 512 tokens in the larger of both vocabularies.
        num_residuals: residuals per request that may be drawn from.
        has_filters: some request filters.
        has_summaries: rows are summed up as wholes.
        skips_rows: programs tell each other which rows need not be read, see `rivals`.
        num_raw_rows: rows per request whose raw logits are summed up for logprobs.
        num_verdicts: rows per request that are judged.
    """

    num_reqs: int
    num_rows: int
    num_blocks: int
    num_residuals: int
    has_filters: bool
    has_summaries: bool
    skips_rows: bool
    num_raw_rows: int
    num_verdicts: int

    @cached_property
    def front(self) -> dict[str, int]:
        """Words of each part where programs meet."""
        return {
            "arrivals": aligned(self.num_reqs * self.num_rows),
            "verdicts": aligned(self.num_reqs * self.num_verdicts),
            "progress": aligned(2 * self.num_reqs),
            "rivals": aligned(2 * self.num_reqs * self.num_verdicts * self.skips_rows),
            "listing": 4 * self.has_filters,
        }

    @cached_property
    def front_size(self) -> int:
        """Words that must be zero when the workspace is first used."""
        return max(sum(self.front.values()), MIN_FRONT)

    @cached_property
    def back(self) -> dict[str, int]:
        """Words of each part behind the front; parts that a call does without have none."""
        rows = self.num_reqs * self.num_rows
        verdicts = self.num_reqs * self.num_verdicts
        raw_rows = self.num_reqs * self.num_raw_rows
        per_row = 2 * self.num_blocks
        filtered_rows = rows * self.has_filters
        sizes = {
            "tokens": verdicts,
            "ratios": 2 * verdicts,
            "summaries": 2 * rows * self.has_summaries,
            "statistics": rows * per_row,
            "residual": self.num_reqs * self.num_residuals * per_row,
            "thresholds": filtered_rows,
            "open_rows": 4 * filtered_rows,
            "counts": min(filtered_rows, MAX_COPIED_ROWS) * COUNT_COPIES * MAX_CANDIDATES,
            "candidates": filtered_rows * MAX_CANDIDATES,
            "raw_summaries": 2 * raw_rows,
            "raw_statistics": raw_rows * per_row,
        }
        return {name: aligned(size) for name, size in sizes.items()}

    @cached_property
    def size(self) -> int:
        """Words in all."""
        return self.front_size + sum(self.back.values())

    @property
    def num_bytes(self) -> int:
        """The same in bytes."""
        return 4 * self.size

    @cached_property
    def parts(self) -> dict[str, tuple[int, int]]:
        """First word and number of words of each part that is not empty."""
        places = {}
        for first, sizes in ((0, self.front), (self.front_size, self.back)):
            start = first
            for name, size in sizes.items():
                if size:
                    places[name] = (start, size)
                start += size
        return places

    def scratch(self, place: Place) -> Scratch:
        """The parts that kernels work in."""
        return self._scratch(place, {name: name for name in Scratch._fields})

    def raw_scratch(self, place: Place) -> Scratch:
        """The same for statistics of raw logits."""
        names = {"summaries": "raw_summaries", "statistics": "raw_statistics"}
        return self._scratch(place, {"arrivals": "arrivals", **names})

    def _scratch(self, place: Place, names: dict[str, str]) -> Scratch:
        known = {field: self.parts[name] for field, name in names.items() if name in self.parts}
        placed = {
            field: place(*part, torch.int32 if field in INT_PARTS else torch.float32)
            for field, part in known.items()
        }
        return NO_SCRATCH._replace(num_blocks=self.num_blocks, **placed)

    def ready(self, workspace: Tensor | None, device: torch.device) -> Tensor:
        """The caller's workspace ready for a call, or one that serves any on one stream."""
        if workspace is None:
            words = torch.empty(self.size, dtype=torch.float32, device=device)
        else:
            words = workspace[: self.num_bytes].view(torch.float32)
            if self.front_size <= MIN_FRONT:
                return words
        # Batches of other shapes do not leave as much of a front alone.
        words[: self.front_size].zero_()
        return words


def cut(workspace: Tensor) -> Place:
    """Parts of a workspace as tensors."""
    return lambda first, size, dtype: workspace[first : first + size].view(dtype)


def aligned(num_words: int) -> int:
    """So many words rounded up to 16 bytes, an alignment that kernels are compiled for."""
    return -(-num_words // 4) * 4


def num_blocks(vocab_size: int) -> int:
    """Blocks of 512 tokens, the last one may be short."""
    return -(-vocab_size // BLOCK_SIZE)
