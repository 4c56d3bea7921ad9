"""How many positions slots have and attention reads.

A GPU's kernels are planned once per length, so lengths are rounded up there: for odd ones kernels
are compiled anew, and attention that copies slots is slower.
"""

import torch

SLOT_STEP, READ_STEP = 128, 256
"""A slot has a multiple of so many positions, and attention reads a multiple, or all there are."""


def slot_len(max_len: int, device: torch.device) -> int:
    """How many positions a slot gets that must have max_len."""
    return _rounded_up(max_len, SLOT_STEP) if rounds(device) else max_len


def read_len(num_filled: int, limit: int, device: torch.device) -> int:
    """How many positions are read to see the first num_filled, of limit ones that may be."""
    return min(_rounded_up(num_filled, READ_STEP), limit) if rounds(device) else num_filled


def rounds(device: torch.device) -> bool:
    """Whether lengths are rounded."""
    return device.type != "cpu"


def _rounded_up(length: int, step: int) -> int:
    return -(-length // step) * step
