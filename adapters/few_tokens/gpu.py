"""The properties of a GPU that launches and tile sizes follow from."""

import torch
from attrs import frozen
from triton.runtime import driver


@frozen(kw_only=True)
class Gpu:
    """A GPU.

    Attributes:
        num_processors: how many programs it runs side by side, if each needs a processor's memory.
        shared_memory: of a program at most, in bytes.
        prefetches: whether it takes PTX, in which weights are prefetched.
        overlaps: whether a kernel may start while the previous one still runs (programmatic
            dependent launch). Such a kernel waits, in every program that writes, before it touches
            what an earlier one wrote, so it ends after all earlier ones.
    """

    num_processors: int
    shared_memory: int
    prefetches: bool
    overlaps: bool

    @classmethod
    def of(cls, device: torch.device) -> "Gpu":
        """The properties of a device."""
        index = torch.cuda.current_device() if device.index is None else device.index
        found = driver.active.utils.get_device_properties(index)
        capability, is_cuda = torch.cuda.get_device_capability(index), torch.version.hip is None
        return cls(
            num_processors=found["multiprocessor_count"],
            shared_memory=found["max_shared_mem"],
            prefetches=is_cuda,
            overlaps=is_cuda and capability >= (9, 0),
        )

    @property
    def launch_options(self) -> dict[str, bool]:
        """The launch options by which a kernel starts early."""
        return {"launch_pdl": True} if self.overlaps else {}
