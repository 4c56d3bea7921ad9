"""Logprobs of what was emitted, on request: one launch behind the verification's.

The emitted tokens' rows are read again. This module refuses to know how tokens were chosen.
"""

import struct

import torch
from attrs import frozen
from torch import Tensor

from ...core.output import Logprobs
from ...core.sampling_tensors import SamplingTensors
from .arguments import Job
from .params import pack
from .variant import KernelPolicy, Variant

_MASS_BYTES = 8
_LAYOUT = struct.Struct("=6q")


def logprobs_variant(job: Job) -> Variant:
    """The kernel for a job's logits."""
    return Variant(
        policy=KernelPolicy.STRICT,
        target=job.variant.target,
        filtered=True,
        adjusted=job.variant.adjusted,
    )


@frozen(eq=False)
class LogprobsLaunch:
    """What a launch is told.

    Attributes:
        logprobs: what it writes.
        packed: its argument.
        num_ctas: how many CTAs it has.
        keep: what must live until the launch.
    """

    logprobs: Logprobs
    packed: bytearray
    num_ctas: int
    keep: tuple[Tensor, ...]

    @classmethod
    def prepare(
        cls,
        job: Job,
        params: SamplingTensors,
        num_logprobs: int,
        room: int,
        device: torch.device,
        into: Logprobs | None = None,
    ) -> "LogprobsLaunch":
        """Allocate a launch's statistics, and its outputs.

        Args:
            job: the verification's, with the address of its token ids.
            params: of the same batch.
            num_logprobs: how many most likely tokens to report.
            room: how many CTAs fit on the device.
            device: where to allocate.
            into: outputs that exist already.
        """
        extent = job.extent
        places = (extent.num_reqs, extent.max_spec_len + 1)
        num_ctas = min(places[0] * places[1], room)
        logprobs = into or Logprobs(
            emitted=torch.empty(places, device=device),
            top_token_ids=torch.empty((*places, num_logprobs), dtype=torch.int64, device=device),
            top=torch.empty((*places, num_logprobs), device=device),
        )
        stats = torch.empty(
            max(1, num_ctas * extent.target_blocks * _MASS_BYTES), dtype=torch.uint8, device=device
        )
        processed = params.logprobs_processed.contiguous()
        addresses = (
            processed.data_ptr(),
            stats.data_ptr(),
            logprobs.emitted.data_ptr(),
            logprobs.top_token_ids.data_ptr(),
            logprobs.top.data_ptr(),
        )
        packed = pack(job.fields) + _LAYOUT.pack(*addresses, num_logprobs)
        return cls(logprobs, packed, num_ctas, (stats, processed))
