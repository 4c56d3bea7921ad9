"""The memory that a sampler works in, kept from call to call."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from attrs import define, field
from torch import Tensor


@define(eq=False)
class Workspace:
    """As large as the largest call has needed so far; all calls are of one stream."""

    # The last is the largest; graphs may have been captured with those before.
    _tensors: list[Tensor] = field(factory=list, init=False)

    @contextmanager
    def for_call(self, num_bytes: int, device: torch.device) -> Iterator[Tensor]:
        """[at least num_bytes] uint8 for one call, as `Sampler` wants it."""
        if not self._tensors or len(self._tensors[-1]) < num_bytes:
            self._tensors.append(torch.zeros(num_bytes, dtype=torch.uint8, device=device))
        try:
            yield self._tensors[-1]
        except BaseException:
            # Kernels that were launched have left counts there, by which later calls would write
            # behind their memory. An error of the device would hide the one that broke it off.
            with suppress(RuntimeError):
                self._tensors[-1].zero_()
            raise
