"""The state of a batch's decoding requests at the beginning of a step."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from attrs import field, frozen
from torch import Tensor

from ..core import SamplingTensors, TokenCounts
from ..core.policies.parameters import derived
from .request_state import RequestState

Known = Mapping[int, Sequence[int]]
"""Slot -> all known tokens of its request, in the order of the batch."""


@frozen(eq=False, kw_only=True)
class Running:
    """The requests that decode together; made anew when one enters or leaves.

    Attributes:
        states: the requests in the batch's order, each with a slot.
        token_counts: None unless a request has penalties.
        is_masked: whether some request is not allowed all tokens.
    """

    states: Sequence[RequestState]
    device: torch.device
    token_counts: TokenCounts | None = None
    is_masked: bool = derived(lambda self: any(one.masks is not None for one in self.states))

    @cached_property
    def params(self) -> SamplingTensors:
        """Their sampling parameters."""
        return self.stack(len(self.states))

    def stack(self, num_rows: int) -> SamplingTensors:
        """Their parameters, filled up with the first one's to this many rows."""
        params = [state.request.params for state in self.states]
        return SamplingTensors.stack([*params, *params[:1] * (num_rows - len(params))], self.device)

    @property
    def known(self) -> Known:
        """Their tokens now."""
        return {state.slot_id: state.token_ids for state in self.states}


@frozen(eq=False, kw_only=True)
class Frontier:
    """The last known tokens of the requests, and what a step needs beside them.

    Attributes:
        rows: [6, num_reqs] int64, see `rows_of`: one tensor, so that the host copies once.
        num_spec_tokens: the largest of the draft limits, or more.
        max_length: the largest of the lengths, or more; None if only the device knows.
        known: for drafters that read tokens on the host.
        last_token_ids: [num_reqs, 2], the last two known tokens; if there is only one, twice that.
            This and the fields below are views of the rows.
        lengths: [num_reqs], how many tokens are known: the position decided next.
        draft_limits: [num_reqs], the most draft tokens that are useful.
        slot_ids: [num_reqs], the request's slot in the models' memory.
        is_occupied: [num_reqs], 1 where there is a request, and 0 for an unused row.
    """

    rows: Tensor
    num_spec_tokens: int
    params: SamplingTensors
    max_length: int | None = None
    known: Known = field(factory=dict)
    last_token_ids: Tensor = derived(lambda self: self.rows[:2].t())
    lengths: Tensor = derived(lambda self: self.rows[2])
    draft_limits: Tensor = derived(lambda self: self.rows[3])
    slot_ids: Tensor = derived(lambda self: self.rows[4])
    is_occupied: Tensor = derived(lambda self: self.rows[5])

    @classmethod
    def of(cls, known: Known, draft_limits: Sequence[int], params: SamplingTensors) -> "Frontier":
        """The frontier of requests; draft_limits: how many draft tokens are useful to each."""
        return cls(
            rows=rows_of(known, draft_limits).to(params.device),
            num_spec_tokens=max(draft_limits),
            params=params,
            max_length=max(map(len, known.values())),
            known=known,
        )

    def last_position(self, ahead: int, limit: int) -> int | None:
        """The highest of the positions `lengths + ahead` below a limit, or a higher one."""
        return None if self.max_length is None else min(self.max_length + ahead, limit - 1)

    def advance(self, emitted: Tensor, num_accepted: Tensor) -> None:
        """Update the rows for the next step, whose draft limits are the same.

        Args:
            emitted: [num_reqs, num_tokens + 1] int64, as `VerifyOutput.token_ids`.
            num_accepted: [num_reqs] int32.
        """
        gained = num_accepted[:, None] + torch.arange(1, 3, device=self.rows.device)
        known = torch.cat((self.last_token_ids, emitted), 1)
        # A request that failed has no token there, and its next step is not read.
        torch.clamp(known.gather(1, gained).t(), min=0, out=self.rows[:2])
        self.lengths.addcmul_(gained[:, 0], self.is_occupied)


def rows_of(
    known: Known, draft_limits: Sequence[int], num_rows: int = 0, idle_slot_id: int = 0
) -> Tensor:
    """`Frontier.rows` on the host, of at least num_rows requests.

    An unused row decodes a request of one token in a spare slot.
    """
    rows = [
        [token_ids[-2:][0], token_ids[-1], len(token_ids), limit, slot_id, 1]
        for (slot_id, token_ids), limit in zip(known.items(), draft_limits, strict=True)
    ]
    rows += [[0, 0, 1, 0, idle_slot_id, 0]] * (num_rows - len(known))
    return torch.tensor(rows).t().contiguous()
