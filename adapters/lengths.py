"""How many positions slots have and attention reads.

A GPU's kernels are planned once per length, so lengths are rounded up there.
"""

import torch
from attrs import frozen


@frozen(kw_only=True)
class Lengths:
    """Rules of rounding.

    Attributes:
        slot_step: a slot has a multiple of this many positions.
        read_step: attention that copies slots reads a multiple of this many, or all there are.
    """

    slot_step: int
    read_step: int

    def of_slot(self, max_len: int) -> int:
        """How many positions a slot gets that must have max_len."""
        return _rounded_up(max_len, self.slot_step)

    def read(self, num_filled: int, limit: int) -> int:
        """How many positions are read to see the first num_filled, of limit ones that may be."""
        return min(_rounded_up(num_filled, self.read_step), limit)


CPU_LENGTHS = Lengths(slot_step=1, read_step=1)

GPU_LENGTHS = Lengths(slot_step=128, read_step=256)
"""Kernels are compiled anew for odd lengths, and attention that copies slots is slower there."""


def lengths_on(device: torch.device) -> Lengths:
    """Those of a device."""
    return CPU_LENGTHS if device.type == "cpu" else GPU_LENGTHS


def _rounded_up(length: int, step: int) -> int:
    return -(-length // step) * step
