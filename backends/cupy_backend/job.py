"""The numbers of one step, the division of its rows, and the kernels that it launches."""

from array import array
from typing import Any

from attrs import frozen

from ...core import Block, Fly, Policy
from .layout import Extent
from .params import pack
from .variant import BFLOAT16, LOSSY, MARKED_BLOCKS, POLICIES, Variant

Fields = dict[str, Any]
Grid = tuple[int, int]
"""The CTAs of a launch."""

FEWEST_PIECE_BLOCKS = 8
"""The blocks of a piece, one for each counting warp."""
MOST_PIECE_BLOCKS = 100
"""The most blocks of a piece of rows without filters that need not be cut. With pieces, fewer rows
begin before a rejection in front of them is published: 8 to 17% faster at 256 requests with a
temperature."""
CLOSER_LOOKS = 2
"""How many launches look again where several CTAs share a row; more are hardly ever needed."""
MOST_SUMS = 3
"""The sums of a lossy policy: entropies, what survives, what is moved."""
FEWEST_RESIDUAL_BLOCKS, MOST_RESIDUAL_BLOCKS = 16, 80
"""Blocks of a CTA of `accept`, of which a device has room for half as many: at least one per warp;
with residuals, which most rows lack, at most 80."""


def _blocks_each(num_blocks: int, rows: int, room: int, fewest: int) -> int:
    """The blocks per CTA, if `room` CTAs share the rows."""
    return max(-(-num_blocks // max(room // max(rows, 1), 1)), fewest)


@frozen(eq=False)
class Job:
    """The arguments of one step, except for addresses that change from call to call.

    Attributes:
        variant: the kernels' variant.
        extent: the sizes of the batch.
        fields: values by the names of params.FIELDS, and the policy's numbers.
    """

    variant: Variant
    extent: Extent
    fields: Fields

    def cut(self, room: int) -> None:
        """Cut rows into pieces that `room` CTAs, which fit on the device at once, can read."""
        extent, fields = self.extent, self.fields
        longest = max(extent.target_blocks, extent.draft_blocks)
        drafts = extent.num_reqs * extent.max_spec_len
        rows = extent.num_reqs * extent.rows_each
        blocks = _blocks_each(longest, rows, room, FEWEST_PIECE_BLOCKS)
        if not extent.may_split:
            blocks = longest
        elif blocks == longest and not extent.filtered:
            blocks = min(blocks, MOST_PIECE_BLOCKS)
        fields["piece_blocks"], fields["num_pieces"] = blocks, -(-longest // blocks)
        fields["num_looks"] = CLOSER_LOOKS if self.leaves_open and fields["num_pieces"] > 1 else 0
        blocks = _blocks_each(extent.target_blocks, drafts, room // 2, FEWEST_RESIDUAL_BLOCKS)
        if extent.sums_each == 1:
            blocks = min(blocks, MOST_RESIDUAL_BLOCKS)
        fields["residual_blocks"] = blocks

    @property
    def reader(self) -> str:
        """The kernel that reads rows; with more warps if each CTA has a multiprocessor."""
        if self.extent.greedy:
            return "greedy"
        if not self.extent.filtered:
            return "statistics"
        return "wide_thresholds" if self.extent.may_split else "thresholds"

    @property
    def leaves_open(self) -> bool:
        """Whether counts mostly leave thresholds open: logits have more bits than counters tell."""
        return self.extent.filtered and self.variant.logits != BFLOAT16

    def launches(self) -> list[tuple[str, Grid]]:
        """The kernels in order, and their CTAs."""
        extent, fields = self.extent, self.fields
        reqs, drafts = extent.num_reqs, extent.max_spec_len
        grid = reqs * fields["num_pieces"], extent.rows_each
        # The wide kernel rehearses behind the last rows.
        launches = [(self.reader, (grid[0], grid[1] + (self.reader == "wide_thresholds")))]
        if extent.marked:
            launches.insert(0, ("marks", (reqs, -(-extent.target_blocks // MARKED_BLOCKS))))
        launches += [("closer", grid)] * fields["num_looks"]
        policy = POLICIES[fields["policy"]]
        parts = -(-extent.target_blocks // fields["residual_blocks"])
        grid = reqs * parts, drafts - 1 if policy is Block else drafts
        launches += [("accept", grid)] * self._sums_of(policy)
        if not fields["ends_early"]:
            launches.append(("outputs", (reqs, 1)))
        if fields.get("num_logprobs") is not None:
            launches.append(("logprobs", (reqs, drafts + 1)))
        return launches

    def _sums_of(self, policy: type[Policy]) -> int:
        """Launches that read rows once more when laws are known, one sum after the other."""
        drafts = self.extent.max_spec_len
        if policy is Block:
            return int(drafts > 1)
        if policy not in LOSSY or drafts == 0:
            return 0
        moves_too = policy is Fly and "allowed_stride" not in self.fields
        sums = MOST_SUMS if self.fields["dense"] and not moves_too else 1
        return sums - int(self.fields["tells_entropies"])

    def words(self) -> "array[int]":
        """The kernels' argument, followed by a place for its address."""
        words = array("q", pack(self.fields))
        words.append(0)
        return words
