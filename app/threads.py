"""How many CPU threads pay off. The command line sets them; a library must not.

A small model's forward is too short to be shared: with more threads than it needs, most of the time
goes into waiting for each other, and on a busy machine nearly all of it.
"""

import torch

BYTES_PER_THREAD = 64 * 2**20
"""Reading this much takes a core some milliseconds, so that a wake-up does not matter."""


def use_threads(num_threads: int | None, num_bytes: int) -> None:
    """Set the process's threads: the given number, or one that suits a target of this size."""
    if num_threads is None:
        num_threads = min(max(num_bytes // BYTES_PER_THREAD, 1), torch.get_num_threads())
    torch.set_num_threads(num_threads)
