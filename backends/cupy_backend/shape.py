"""How a launch is cut into tasks. Results do not depend on it, only time does."""

from attrs import frozen

from .workspace import Extent


@frozen
class LaunchShape:
    """One way to cut a launch.

    Attributes:
        chunk: blocks of one streaming task.
        residual_chunks: tasks that share one request's residual; 0 leaves it to the CTA that
            decides the request.
        num_ctas: at most so many; all of them must fit on the device at once.
    """

    chunk: int
    residual_chunks: int
    num_ctas: int

    @classmethod
    def choose(cls, extent: Extent, num_ctas: int) -> "LaunchShape":
        """Small tasks when there is little to do, so that every multiprocessor has some."""
        rows = extent.num_reqs * (extent.max_spec_len + 1)
        blocks = rows * extent.target_blocks
        blocks += extent.num_reqs * extent.max_spec_len * extent.draft_blocks
        chunk = next((size for size in (64, 32, 16) if blocks >= 4 * size * num_ctas), 8)
        residual_chunks = -(-extent.target_blocks // 8) if extent.num_reqs < 32 else 8
        if extent.max_spec_len == 0:
            residual_chunks = 0
        return cls(chunk=chunk, residual_chunks=residual_chunks, num_ctas=num_ctas)

    def pair_chunks(self, extent: Extent) -> int:
        """Streaming tasks of a target row and its draft row."""
        return -(-(extent.target_blocks + extent.draft_blocks) // self.chunk)

    def last_chunks(self, extent: Extent) -> int:
        """Streaming tasks of a row without a draft row."""
        return -(-extent.target_blocks // self.chunk)

    def num_blocks(self, extent: Extent) -> int:
        """CTAs of the launch: never more than there are tasks."""
        tasks = extent.num_reqs * (
            extent.max_spec_len * self.pair_chunks(extent)
            + self.last_chunks(extent)
            + self.residual_chunks
        )
        return min(tasks, self.num_ctas)
