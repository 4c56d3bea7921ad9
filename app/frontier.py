"""Where the decoding requests of a batch stand at the beginning of a step."""

from collections.abc import Mapping, Sequence
from functools import cache

import torch
from attrs import field, frozen
from torch import Tensor

from ..core.sampling_tensors import SamplingTensors
from .request_state import RequestState


@frozen(eq=False, kw_only=True)
class Running:
    """The requests that decode together; made again when one enters or leaves.

    Attributes:
        states: in the order of the batch.
        slot_ids: [num_reqs] int64.
        params: their sampling parameters, perhaps with more to fill up.
    """

    states: Sequence[RequestState]
    slot_ids: Tensor
    params: SamplingTensors

    @classmethod
    def gather(
        cls, states: Sequence[RequestState], device: torch.device, num_rows: int = 0
    ) -> "Running":
        """These requests, each of which has a slot.

        Args:
            states: at least one if num_rows is larger than their number.
            device: where the tensors are wanted.
            num_rows: how many requests there shall be parameters for; the first one's fill up.
        """
        slot_ids = [state.slot_id for state in states]
        params = [state.request.params for state in states]
        params += params[:1] * (num_rows - len(states))
        return cls(
            states=states,
            slot_ids=torch.tensor(slot_ids, dtype=torch.int64, device=device),
            params=SamplingTensors.stack(params, device),
        )


@frozen(eq=False, kw_only=True)
class Frontier:
    """The known ends of the requests.

    Attributes:
        last_token_ids: [num_reqs, 2] int64, the last two known tokens; twice the first where there
            is only one.
        lengths: [num_reqs] int64, how many tokens are known: the position decided next.
        draft_limits: [num_reqs] int64, how many draft tokens are of use at most.
        max_length: the largest of the lengths, where it is known without asking the device.
        num_spec_tokens: the largest of the draft limits, or more.
        slot_ids: [num_reqs] int64.
        params: the requests' sampling parameters.
        known: slot -> all known tokens, in the order of the batch, for drafters that read them on
            the host.
    """

    last_token_ids: Tensor
    lengths: Tensor
    draft_limits: Tensor
    max_length: int | None
    num_spec_tokens: int
    slot_ids: Tensor
    params: SamplingTensors
    known: Mapping[int, Sequence[int]] = field(factory=dict)

    @classmethod
    def of(cls, running: Running, draft_limits: Sequence[int]) -> "Frontier":
        """Look at the requests.

        Args:
            running: the batch.
            draft_limits: how many draft tokens are of use to each.
        """
        known = [state.token_ids for state in running.states]
        lengths = [len(token_ids) for token_ids in known]
        device = running.slot_ids.device
        return cls(
            last_token_ids=torch.tensor(last_two(known), device=device),
            lengths=torch.tensor(lengths, device=device),
            draft_limits=torch.tensor(draft_limits, device=device),
            max_length=max(lengths),
            num_spec_tokens=max(draft_limits),
            slot_ids=running.slot_ids,
            params=running.params,
            known={state.slot_id: state.token_ids for state in running.states},
        )

    def last_position(self, ahead: int, limit: int) -> int | None:
        """The highest of the positions `lengths + ahead` below a limit, where it is known."""
        return None if self.max_length is None else min(self.max_length + ahead, limit - 1)


@cache
def places(first: int, last: int, device: torch.device) -> Tensor:
    """From first to last, [last - first + 1] int64; kept, or steps would make them anew."""
    return kept(range(first, last + 1), torch.int64, device)


def kept(numbers: range, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers that steps use again and again."""
    # A step runs once before it is captured; what is made meanwhile would be the graph's.
    assert device.type != "cuda" or not torch.cuda.is_current_stream_capturing()
    # Copied, which waits: who uses them next may be another stream.
    return torch.tensor(numbers, dtype=dtype, device=device)


def last_two(known: Sequence[Sequence[int]]) -> list[list[int]]:
    """The last two tokens of each; twice the first where there is only one."""
    return [[token_ids[max(-2, -len(token_ids))], token_ids[-1]] for token_ids in known]
