"""The workspace: a few numbers per block of 512 logits, and nothing as large as a row.

Programs synchronise through its front, which is zero between calls.
"""

from functools import cached_property
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...core.call_memory import WORKSPACE_ALIGNMENT
from .accept import NUM_SUMS
from .arguments import Variant
from .queue import MOST_ROUNDS, NUM_COUNTERS
from .records import DECISION, RECORD_TAIL
from .thresholds.bins import BINS
from .thresholds.touched import MOST_TOUCHED, ODD_WORDS

MIN_FRONT = 1 << 17
"""The least bytes of the front, so that calls of other shapes do not write there."""


@frozen(slots=False)
class Layout:
    """The size and the parts of a call's workspace.

    Attributes:
        num_reqs: requests.
        num_blocks: blocks of 512 tokens in the larger of both vocabularies.
        variant: the constants that kernels are compiled for.
        has_raw: whether raw logits are summed up for logprobs.
        has_penalties: whether some request has penalties.
        lists: whether tokens are listed that bias or penalties touch.
    """

    num_reqs: int
    num_blocks: int
    variant: Variant
    has_raw: bool
    has_penalties: bool
    lists: bool

    @property
    def num_rows(self) -> int:
        """Rows of statistics, see `rows`."""
        return int(self.num_reqs * self.variant.num_rows)

    @property
    def num_verdicts(self) -> int:
        """How many rows are judged."""
        return int(self.num_reqs * (self.variant.num_drafts + 1))

    @cached_property
    def record_words(self) -> int:
        """The 4-byte words of a row's record."""
        return int(2 * (-(-self.num_blocks // 4) * 4) + RECORD_TAIL.value)

    @cached_property
    def queue_length(self) -> int:
        """How often rows can be queued in one call."""
        return int(self.num_rows * MOST_ROUNDS.value * self.variant.filters)

    @cached_property
    def parts(self) -> dict[str, tuple[int, int, torch.dtype]]:
        """First byte, number of bytes and dtype of each part."""
        rows, verdicts, filters = self.num_rows, self.num_verdicts, self.variant.filters
        has_sums = self.variant.is_lossy or self.variant.policy == "block"
        sizes = {
            "counters": (4 * NUM_COUNTERS.value * filters, torch.int32),
            "arrivals": (4 * self.num_reqs, torch.int32),
            "sums": (8 * (verdicts - self.num_reqs) * NUM_SUMS.value * has_sums, torch.int64),
            "num_touched": (4 * self.num_reqs * self.lists, torch.int32),
            "seen": (64 * self.num_reqs * self.num_blocks * self.has_penalties, torch.uint8),
            "records": (4 * rows * self.record_words, torch.float32),
            "raw": (4 * verdicts * self.record_words * self.has_raw, torch.float32),
            "bins": (4 * rows * BINS.value * filters, torch.int32),
            "touched": (4 * self.num_reqs * MOST_TOUCHED.value * self.lists, torch.int32),
            "odd": (8 * rows * ODD_WORDS.value * self.lists, torch.int64),
            "queue": (4 * self.queue_length, torch.int32),
            "decisions": (4 * verdicts * DECISION.value, torch.int32),
        }
        places, start = {}, 0
        for name, (size, dtype) in sizes.items():
            # This is the first part after the front.
            start = max(start, MIN_FRONT) if name == "seen" else start
            places[name] = (start, size, dtype)
            start += -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        return places

    @cached_property
    def front_size(self) -> int:
        """Bytes that must be zero when the workspace is first used."""
        return self.parts["seen"][0]

    @cached_property
    def size(self) -> int:
        """All bytes."""
        first, size, _dtype = self.parts["decisions"]
        return first + -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT

    def scratch(self, workspace: Tensor | int) -> tuple[Any, ...]:
        """The parts of a workspace, ordered as in `Scratch`: tensors, or addresses if it is one."""
        parts: list[Any]
        # Parts that a call does not need are None: code for them is compiled away.
        if isinstance(workspace, int):
            parts = [workspace + start if size else None for start, size, _ in self.parts.values()]
        else:
            parts = [
                workspace[start : start + size].view(dtype) if size else None
                for start, size, dtype in self.parts.values()
            ]
        return *parts, self.num_blocks, self.queue_length

    def ready(self, workspace: Tensor | None, device: torch.device) -> Tensor:
        """A workspace with its front at zero: the caller's, or a new one."""
        if workspace is None:
            workspace = torch.empty(self.size, dtype=torch.uint8, device=device)
        elif self.front_size <= MIN_FRONT:
            return workspace
        # Calls of other shapes may have written where this front lies.
        workspace[: self.front_size].zero_()
        return workspace
