"""The workspace: a few numbers per block of 512 logits, and nothing as large as a row.

Its front is where programs meet; it is zero between calls.
"""

from functools import cached_property

import torch
from attrs import frozen
from torch import Tensor

from ...core.call_memory import WORKSPACE_ALIGNMENT
from .accept import NUM_SUMS
from .arguments import Scratch
from .queue import MOST_ROUNDS, NUM_COUNTERS
from .records import DECISION, RECORD_TAIL
from .thresholds.found import BIN_WORDS

MIN_FRONT = 1 << 17
"""Bytes of the front at least, so that calls of other shapes leave it alone."""


@frozen(slots=False)
class Layout:
    """How many bytes a call needs, and where they lie.

    Attributes:
        num_reqs: requests.
        num_rows: rows of statistics per request, see `rows`.
        num_verdicts: rows per request that are judged.
        num_blocks: blocks of 512 tokens in the larger of both vocabularies.
        filters: some row is cut.
        has_sums: rows are summed up for a policy.
        has_raw: raw logits are summed up for logprobs.
        has_penalties: some request has penalties.
    """

    num_reqs: int
    num_rows: int
    num_verdicts: int
    num_blocks: int
    filters: bool
    has_sums: bool
    has_raw: bool
    has_penalties: bool

    @cached_property
    def record_words(self) -> int:
        """Words of 4 bytes of a row's record."""
        return int(2 * (-(-self.num_blocks // 4) * 4) + RECORD_TAIL.value)

    @cached_property
    def queue_length(self) -> int:
        """How often rows can be put into the queue of a call."""
        return int(self.num_reqs * self.num_rows * MOST_ROUNDS.value * self.filters)

    @cached_property
    def parts(self) -> dict[str, tuple[int, int, torch.dtype]]:
        """First byte, number of bytes and dtype of each part."""
        rows = self.num_reqs * self.num_rows
        verdicts = self.num_reqs * self.num_verdicts
        sums = self.num_reqs * (self.num_verdicts - 1) * NUM_SUMS.value * self.has_sums
        front = {
            "counters": (4 * NUM_COUNTERS.value * self.filters, torch.int32),
            "arrivals": (4 * self.num_reqs, torch.int32),
            "sums": (8 * sums, torch.int64),
        }
        back = {
            "seen": (64 * self.num_reqs * self.num_blocks * self.has_penalties, torch.uint8),
            "records": (4 * rows * self.record_words, torch.float32),
            "raw": (4 * verdicts * self.record_words * self.has_raw, torch.float32),
            "bins": (8 * rows * BIN_WORDS.value * self.filters, torch.int64),
            "queue": (4 * self.queue_length, torch.int32),
            "decisions": (4 * verdicts * DECISION.value, torch.int32),
        }
        places, start = {}, 0
        for group in (front, back):
            for name, (size, dtype) in group.items():
                places[name] = (start, size, dtype)
                start += -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
            start = max(start, MIN_FRONT)
        return places

    @cached_property
    def front_size(self) -> int:
        """Bytes that must be zero when the workspace is first used."""
        return self.parts["seen"][0]

    @cached_property
    def size(self) -> int:
        """Bytes in all."""
        first, size, _dtype = self.parts["decisions"]
        return first + -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT

    @cached_property
    def _places(self) -> tuple[tuple[int, int, torch.dtype] | None, ...]:
        parts = [self.parts[name] for name in Scratch._fields[:-2]]
        # What a call does not need is compiled away.
        return tuple(part if part[1] else None for part in parts)

    def scratch(self, workspace: Tensor) -> Scratch:
        """The parts of a workspace as tensors."""
        parts = [
            None if place is None else workspace[place[0] : sum(place[:2])].view(place[2])
            for place in self._places
        ]
        return Scratch._make([*parts, self.num_blocks, self.queue_length])

    def addresses(self, workspace: Tensor) -> Scratch:
        """The same as addresses."""
        base = workspace.data_ptr()
        parts = [None if place is None else base + place[0] for place in self._places]
        return Scratch._make([*parts, self.num_blocks, self.queue_length])

    def ready(self, workspace: Tensor | None, device: torch.device) -> Tensor:
        """The caller's workspace ready for a call, or one that serves this call."""
        if workspace is None:
            workspace = torch.empty(self.size, dtype=torch.uint8, device=device)
        elif self.front_size <= MIN_FRONT:
            return workspace
        # Calls of other shapes do not leave as much of a front alone.
        workspace[: self.front_size].zero_()
        return workspace
