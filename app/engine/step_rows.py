"""Where a recorded step finds its requests: one row for each, at addresses that stay."""

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor

from ..frontier import last_two, places
from ..request_state import RequestState


@frozen(eq=False)
class StepRows:
    """What a step reads of its requests, in one tensor, so that the host copies once.

    A row that is left over decodes a request of one token in a slot that no request is given.

    Attributes:
        buffer: [6, num_rows] int64; the properties are views of it.
    """

    buffer: Tensor

    @classmethod
    def of(
        cls,
        states: Sequence[RequestState],
        gained: Sequence[Sequence[int]],
        draft_limits: Sequence[int],
        num_rows: int,
        idle_slot_id: int,
    ) -> "StepRows":
        """Rows on the host, of at most num_rows requests; gained are tokens that they will have."""
        requests = list(zip(states, gained, draft_limits, strict=True))
        known = last_two([(*state.token_ids[-2:], *more) for state, more, _ in requests])
        rows = [
            [*two, len(state.token_ids) + len(more), limit, state.slot_id, 1]
            for two, (state, more, limit) in zip(known, requests, strict=True)
        ]
        rows += [[0, 0, 1, 0, idle_slot_id, 0]] * (num_rows - len(states))
        return cls(torch.tensor(rows).t().contiguous())

    @property
    def last_token_ids(self) -> Tensor:
        """[num_rows, 2], see `Frontier`."""
        return self.buffer[:2].t()

    @property
    def lengths(self) -> Tensor:
        """[num_rows], see `Frontier`."""
        return self.buffer[2]

    @property
    def draft_limits(self) -> Tensor:
        """[num_rows], see `Frontier`."""
        return self.buffer[3]

    @property
    def slot_ids(self) -> Tensor:
        """[num_rows], see `Frontier`."""
        return self.buffer[4]

    @property
    def is_occupied(self) -> Tensor:
        """[num_rows], 1 where there is a request, and else 0."""
        return self.buffer[5]

    def copy_from(self, rows: "StepRows") -> None:
        """Take over as many rows; does not wait for the device."""
        self.buffer.copy_(rows.buffer, non_blocking=True)

    def advance(self, emitted: Tensor, num_accepted: Tensor) -> None:
        """Leave the rows as the next step needs them if every draft limit stays what it is.

        Args:
            emitted: [num_rows, num_tokens + 1] int64, as `VerifyOutput.token_ids`.
            num_accepted: [num_rows] int32.
        """
        gained = num_accepted[:, None] + places(1, 2, self.buffer.device)
        known = torch.cat((self.last_token_ids, emitted), 1)
        # A request that failed has no token there, and no next step that anybody looks at.
        torch.clamp(known.gather(1, gained).t(), min=0, out=self.buffer[:2])
        self.lengths.addcmul_(gained[:, 0], self.is_occupied)
