"""How a launch is spread over the device. Results do not depend on it, only time does."""

from attrs import frozen

from .workspace import Extent

_WARPS = 16
_NARROW_FROM = 2
_MOST_ROWS = 8
"""Of a request whose rows are dealt out, as cuda/rowwise.cu has bits for."""


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
class LaunchShape:
    """One way to spread a launch.

    Attributes:
        group: CTAs that share a request, all of which must fit on the device at once; 0 for the
            kernel that gives each request one CTA. By rows: CTAs that share a row.
        num_ctas: of the launch.
        by_rows: each CTA reads a row or a part of one, first rows of all requests first.
    """

    group: int
    num_ctas: int
    by_rows: bool = False

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        if self.by_rows:
            return "rowwise"
        return "wide" if self.group else "narrow"

    def fields(self, extent: Extent) -> dict[str, int]:
        """What a launch for a batch is told of it, by the names of params.FIELDS."""
        group = max(self.group, 1)
        pair = extent.target_blocks + extent.draft_blocks
        return {
            "group": group,
            "group_inverse": 2**20 // group + 1,
            "share": -(-_blocks(extent) // group),
            "inverse": (2**32 - 1) // max(pair, 1),
        }

    @classmethod
    def narrow(cls, extent: Extent, room: int) -> "LaunchShape":
        """One CTA a request; `room` is how many CTAs fit on the device."""
        return cls(group=0, num_ctas=min(extent.num_reqs, room))

    @classmethod
    def wide(cls, extent: Extent, room: int) -> "LaunchShape":
        """As many CTAs a request as fit, but none without a block for each of its warps.

        Or one a multiprocessor, if that are more; and as few as leave nobody a larger share.
        """
        blocks, fit = max(_blocks(extent), 1), room // extent.num_reqs
        group = max(1, min(fit, -(-blocks // _WARPS)), min(fit // 2, blocks))
        group = -(-blocks // -(-blocks // group))
        return cls(group=group, num_ctas=group * extent.num_reqs)

    @classmethod
    def rowwise(cls, extent: Extent, parts: int) -> "LaunchShape":
        """So many CTAs a row."""
        rows = extent.max_spec_len + 1
        return cls(group=parts, num_ctas=parts * rows * extent.num_reqs, by_rows=True)

    @classmethod
    def choose(cls, extent: Extent, room: int, by_rows: ByRows | None = None) -> "LaunchShape":
        """Wide while requests are few; by rows if there is a kernel for that, as it says."""
        room_each = room // extent.num_reqs
        fits = 0 < extent.max_spec_len < _MOST_ROWS
        if by_rows is not None and fits and room_each <= by_rows.most_room:
            return cls.rowwise(extent, by_rows.parts)
        if room_each < _NARROW_FROM:
            return cls.narrow(extent, room)
        return cls.wide(extent, room)


def _blocks(extent: Extent) -> int:
    """Of one request's rows."""
    rows = extent.max_spec_len + 1
    return rows * extent.target_blocks + extent.max_spec_len * extent.draft_blocks
