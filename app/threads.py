"""How many CPU threads pay off; the command line sets them, a library must not.

A small model's forward is too short to be shared: with more threads than it needs, most of the
time goes into waiting for each other, and on a busy machine all of it does.
"""

import torch

BYTES_PER_THREAD = 64 * 2**20
"""Reading as much takes a core some milliseconds, beside which a wake-up does not count."""


def use_threads(num_threads: int | None, num_bytes: int) -> None:
    """Set the process's threads: as many as asked for, or as a target of so many bytes is worth."""
    if num_threads is None:
        num_threads = min(max(num_bytes // BYTES_PER_THREAD, 1), torch.get_num_threads())
    torch.set_num_threads(num_threads)
