"""How a launch is spread over the device. Results do not depend on it, only time does."""

from attrs import frozen

from ...core.errors import UnavailableError
from .workspace import Extent

_WARPS = 16
_NARROW_FROM = 2
_APART_ROOM, _APART_ROOM_RELIEVED, _RELIEVED_ROOM = 33, 22, 11
"""For so many CTAs a request, or more, the last has nothing to read; or fewer, it has less."""
_MOST_ROWS = 8
"""Of a request whose rows are dealt out, as cuda/rowwise.cu has bits for."""
_MOST_PIECE_BLOCKS = 128
"""As cuda/pieces.cu has room for."""
_BY_DIMENSIONS = ("greedy_pieces",)
"""Kernels whose CTAs know their piece, request and row by the dimensions of the grid."""
_MOST_REQUESTS = 65_535
"""Of a grid's second dimension."""

Grid = tuple[int, int, int]
"""CTAs of a launch."""


@frozen
class ByRows:
    """When rows of requests are dealt out to CTAs one by one.

    Attributes:
        parts: CTAs that share a row.
        most_room: for how many CTAs a request there may be room; 0: for less than one.
    """

    parts: int
    most_room: int


@frozen
class ByPieces:
    """When rows of requests are read by pieces.

    Attributes:
        blocks: of a piece, at most.
        sizes: of batches, in requests for each CTA that there is room for: more than the first and
            no more than the second number of one of these.
    """

    blocks: int
    sizes: tuple[tuple[float, float], ...]

    def suits(self, extent: Extent, room: int) -> bool:
        """Whether a batch is of that size, and one that `LaunchShape.pieces` takes."""
        return (
            any(above * room < extent.num_reqs <= most * room for above, most in self.sizes)
            and extent.num_reqs <= _MOST_REQUESTS
            and 0 < extent.max_spec_len < _MOST_ROWS
            and extent.target_blocks <= extent.most_pieces * _MOST_PIECE_BLOCKS
            and extent.draft_blocks in (0, extent.target_blocks)
        )


@frozen
class LaunchShape:
    """One way to spread a launch.

    Attributes:
        group: CTAs that share a request, all of which must fit on the device at once; 0 for the
            kernel that gives each request one CTA. By rows or pieces: CTAs that share a row.
        num_ctas: of the launch.
        by_rows: each CTA reads a row or a part of one, first rows of all requests first.
        by_pieces: the same in pieces of a few blocks; a second launch judges rows.
        share: blocks of a CTA, of which the last may have fewer; 0: as even as may be.
    """

    group: int
    num_ctas: int
    by_rows: bool = False
    by_pieces: bool = False
    share: int = 0

    def launches(self, extent: Extent, pieces: str) -> tuple[tuple[str, Grid], ...]:
        """Kernels one behind the other, and their CTAs.

        Args:
            extent: of the batch.
            pieces: which kernel reads pieces.
        """
        all_in_a_row = self.num_ctas, 1, 1
        if self.by_pieces:
            by_dimensions = self.group, extent.num_reqs, extent.max_spec_len + 1
            grid = by_dimensions if pieces in _BY_DIMENSIONS else all_in_a_row
            return (pieces, grid), (f"{pieces}_end", (extent.num_reqs, 1, 1))
        if self.by_rows:
            return (("rowwise", all_in_a_row),)
        return (("wide" if self.group else "narrow", all_in_a_row),)

    def fields(self, extent: Extent) -> dict[str, int]:
        """What a launch for a batch is told of it, by the names of params.FIELDS."""
        group = max(self.group, 1)
        pair = extent.target_blocks + extent.draft_blocks
        blocks = extent.target_blocks if self.by_pieces else _blocks(extent)
        return {
            "group": group,
            "group_inverse": 2**20 // group + 1,
            "share": self.share or -(-blocks // group),
            "inverse": (2**32 - 1) // max(pair, 1),
        }

    @classmethod
    def narrow(cls, extent: Extent, room: int) -> "LaunchShape":
        """One CTA a request; `room` is how many of the narrow kernel's fit on the device."""
        return cls(group=0, num_ctas=min(extent.num_reqs, room))

    @classmethod
    def wide(cls, extent: Extent, room: int, *, relief: int | None = None) -> "LaunchShape":
        """As many CTAs a request as fit, but none without a block for each of its warps.

        Or one a multiprocessor, if that are more; and as few as leave nobody a larger share.
        With a `relief` the last CTA, which finishes, reads nothing where there are many, and where
        there are few so many blocks less than others.
        """
        blocks, fit = max(_blocks(extent), 1), room // extent.num_reqs
        if relief is not None and fit >= (_APART_ROOM_RELIEVED if relief else _APART_ROOM):
            readers = min(fit // 2 if extent.num_reqs == 1 else fit - 1, blocks)
            share = -(-blocks // readers)
            group = -(-blocks // share) + 1
            return cls(group=group, num_ctas=group * extent.num_reqs, share=share)
        group = max(1, min(fit, -(-blocks // _WARPS)), min(fit // 2, blocks))
        group = -(-blocks // -(-blocks // group))
        share = 0
        if relief and fit <= _RELIEVED_ROOM and blocks >= _WARPS * relief:
            share = -(-(blocks + relief) // group)
        return cls(group=group, num_ctas=group * extent.num_reqs, share=share)

    @classmethod
    def rowwise(cls, extent: Extent, parts: int) -> "LaunchShape":
        """So many CTAs a row."""
        rows = extent.max_spec_len + 1
        return cls(group=parts, num_ctas=parts * rows * extent.num_reqs, by_rows=True)

    @classmethod
    def pieces(cls, extent: Extent, blocks: int) -> "LaunchShape":
        """Pieces of so many blocks at most, or larger ones, if a row would have too many.

        Raises:
            UnavailableError: even so they would be larger than there is room for, or the requests
                are more than a grid can have.
        """
        if extent.num_reqs > _MOST_REQUESTS:
            raise UnavailableError(
                f"num_reqs: expected at most {_MOST_REQUESTS} of a batch that is read by pieces, "
                f"got {extent.num_reqs}"
            )
        blocks = min(blocks, _MOST_PIECE_BLOCKS)
        parts = min(max(1, -(-extent.target_blocks // blocks)), extent.most_pieces)
        most = extent.most_pieces * _MOST_PIECE_BLOCKS
        if extent.target_blocks > most:
            raise UnavailableError(
                f"vocab_size: expected at most {most} blocks of a row that is read by pieces, "
                f"got {extent.target_blocks}"
            )
        rows = extent.max_spec_len + 1 + (extent.max_spec_len if extent.draft_blocks else 0)
        return cls(group=parts, num_ctas=parts * rows * extent.num_reqs, by_pieces=True)

    @classmethod
    def choose(
        cls,
        extent: Extent,
        room: int,
        by_rows: ByRows | None = None,
        by_pieces: ByPieces | None = None,
        *,
        relief: int | None = None,
    ) -> "LaunchShape":
        """Wide while requests are few; by pieces or rows if there are kernels for that.

        `room` is how many CTAs of the wide kernel fit on the device; of the narrow one, there may
        be room for others. `relief` as for `wide`.
        """
        if by_pieces is not None and by_pieces.suits(extent, room):
            return cls.pieces(extent, by_pieces.blocks)
        room_each = room // extent.num_reqs
        fits = 0 < extent.max_spec_len < _MOST_ROWS
        if by_rows is not None and fits and room_each <= by_rows.most_room:
            return cls.rowwise(extent, by_rows.parts)
        if room_each < _NARROW_FROM:
            return cls.narrow(extent, room)
        return cls.wide(extent, room, relief=relief)


def _blocks(extent: Extent) -> int:
    """Of one request's rows."""
    rows = extent.max_spec_len + 1
    return rows * extent.target_blocks + extent.max_spec_len * extent.draft_blocks
