"""The sizes of a batch, and the parts of its workspace.

Control words and counts are 0 between calls; other parts are never cleared. Calls of different
sizes can share a workspace, because its first half holds only control words and counts.
"""

from functools import cached_property
from itertools import accumulate

from attrs import frozen

from ...core.race import BLOCK_SIZE
from .variant import COUNT_WORDS, MAX_LISTED

MOST_SPLIT_ROWS = 128
"""The most rows that several CTAs each may count: a device has about this many multiprocessors."""
_ALIGNMENT = 16
_FACTS_BYTES, _MASS_BYTES, _WORD_BYTES = 80, 8, 4
_SEARCH_BYTES = 64


@frozen(slots=False)
class Extent:
    """The sizes of a batch.

    Attributes:
        num_reqs: how many requests it has.
        max_spec_len: the length of the longest draft.
        vocab_size: the target's vocabulary.
        draft_vocab_size: the vocabulary of draft rows; 0 if none is read.
        sums_each: how many numbers `accept` stores per block.
        greedy: whether only the largest logit of each row is needed.
        filtered: whether rows are counted.
        marked: whether ids with bias or penalties are marked.
        biased: whether some request has a bias.
    """

    num_reqs: int
    max_spec_len: int
    vocab_size: int
    draft_vocab_size: int = 0
    sums_each: int = 0
    greedy: bool = False
    filtered: bool = False
    marked: bool = False
    biased: bool = False

    @property
    def rows_each(self) -> int:
        """The most rows of a request that are read."""
        return self.max_spec_len + 1 + (self.max_spec_len if self.draft_blocks else 0)

    @property
    def target_blocks(self) -> int:
        """How many blocks a target row has."""
        return -(-self.vocab_size // BLOCK_SIZE)

    @property
    def draft_blocks(self) -> int:
        """How many blocks a draft row has."""
        return -(-self.draft_vocab_size // BLOCK_SIZE)

    @property
    def may_split(self) -> bool:
        """Whether several CTAs may read a row."""
        return not self.filtered or self.num_reqs * self.rows_each <= MOST_SPLIT_ROWS

    @cached_property
    def num_bytes(self) -> int:
        """The size of a workspace."""
        half = max(sum(size for _, size in part) for part in (self._control, self._scratch))
        return 2 * -(-half // _ALIGNMENT) * _ALIGNMENT

    def areas(self, address: int, num_bytes: int) -> dict[str, int]:
        """Addresses in a workspace of at least `num_bytes`, by the names of params.FIELDS."""
        places: dict[str, int] = {}
        second_half = address + num_bytes // 2 // _ALIGNMENT * _ALIGNMENT
        for begin, part in ((address, self._control), (second_half, self._scratch)):
            ends = accumulate((size for _, size in part), initial=begin)
            places |= {name: place for (name, _), place in zip(part, ends, strict=False)}
        return places

    @property
    def _control(self) -> tuple[tuple[str, int], ...]:
        requests = _WORD_BYTES * self.num_reqs
        rows = requests * (self.max_spec_len + 1)
        counts = 2 * rows * (COUNT_WORDS + MAX_LISTED)
        return (
            ("tops", 2 * rows if self.greedy else 0),
            ("counts", counts if self.filtered and self.may_split else 0),
            ("ends", requests),
            ("judged", requests),
            ("arrivals", rows),
            ("counted", 2 * rows),
        )

    @property
    def _scratch(self) -> tuple[tuple[str, int], ...]:
        drafts = self.num_reqs * self.max_spec_len
        rows = drafts + self.num_reqs
        ids = self.num_reqs * self.target_blocks * BLOCK_SIZE
        residuals = drafts * self.target_blocks * _WORD_BYTES * self.sums_each
        return (
            ("facts", rows * _FACTS_BYTES),
            ("searches", rows * 2 * _SEARCH_BYTES if self.filtered and self.may_split else 0),
            ("marks", ids if self.marked else 0),
            ("biases", ids * _WORD_BYTES if self.marked and self.biased else 0),
            ("target_stats", rows * self.target_blocks * _MASS_BYTES),
            ("draft_stats", drafts * self.draft_blocks * _MASS_BYTES),
            ("residuals", residuals),
        )
