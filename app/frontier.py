"""Where the running requests of a batch stand at the beginning of a step.

This module refuses to remember anything from one step to the next.
"""

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor

from ..core.sampling_tensors import SamplingTensors
from .request_state import RequestState


@frozen(eq=False, kw_only=True)
class Running:
    """The requests that still decode; made anew when one has ended.

    Attributes:
        states: in the order of the batch.
        slot_ids: [num_reqs] int64.
        params: their sampling parameters.
    """

    states: Sequence[RequestState]
    slot_ids: Tensor
    params: SamplingTensors

    @classmethod
    def gather(cls, states: Sequence[RequestState], device: torch.device) -> "Running":
        """Those of the requests that have not ended."""
        left = [state for state in states if state.finish_reason is None]
        return cls(
            states=left,
            slot_ids=torch.tensor(
                [state.index for state in left], dtype=torch.int64, device=device
            ),
            params=SamplingTensors.stack([state.request.params for state in left], device),
        )


@frozen(eq=False, kw_only=True)
class Frontier:
    """The known ends of the running requests.

    Attributes:
        last_token_ids: [num_reqs, 2] int64, the last two known tokens; twice the first where there
            is only one.
        lengths: [num_reqs] int64, how many tokens are known: the position decided next.
        max_length: the largest of them, known without asking the device.
        slot_ids: [num_reqs] int64.
        params: the requests' sampling parameters.
    """

    last_token_ids: Tensor
    lengths: Tensor
    max_length: int
    slot_ids: Tensor
    params: SamplingTensors

    @classmethod
    def of(cls, running: Running) -> "Frontier":
        """Look at the requests."""
        known = [state.token_ids for state in running.states]
        lengths = [len(token_ids) for token_ids in known]
        device = running.slot_ids.device
        return cls(
            last_token_ids=torch.tensor(
                [[token_ids[max(-2, -len(token_ids))], token_ids[-1]] for token_ids in known],
                device=device,
            ),
            lengths=torch.tensor(lengths, device=device),
            max_length=max(lengths),
            slot_ids=running.slot_ids,
            params=running.params,
        )

    def positions(self, first: int, last: int) -> Tensor:
        """Positions `lengths + first` to `lengths + last`: [num_reqs, last - first + 1]."""
        return self.lengths[:, None] + torch.arange(first, last + 1, device=self.lengths.device)
