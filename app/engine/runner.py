"""How one step of a batch is run: at once, operation by operation.

`acceptor.app.engine.cuda_graphs` runs the same step captured. This module refuses to know how
requests came into the batch.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from attrs import frozen

from ...core.token_counts import TokenCounts
from ..decode import DecodeStep
from ..frontier import Frontier, Running
from ..request_state import RequestState, Verdict
from ..verdicts import pack, read_verdicts


class Runner(Protocol):
    """Runs steps."""

    def gather(self, states: Sequence[RequestState]) -> Running:
        """A batch of these requests, for as many steps as it stays the same."""
        ...

    def run(
        self, running: Running, rooms: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """Draft, score and verify every request of a batch.

        Args:
            running: the batch.
            rooms: how many draft tokens are of use to each request.
            token_counts: None unless a request has penalties.

        Returns:
            One verdict per request, in the order of the batch.
        """
        ...


@runtime_checkable
class EarlyRunner(Runner, Protocol):
    """Can begin a step before the host has acted on the one before."""

    def begin(
        self,
        running: Running,
        rooms: Sequence[int],
        token_counts: TokenCounts | None,
        gained: Sequence[Sequence[int]],
    ) -> bool:
        """Begin the step that the next `run` is going to be asked for; False if that cannot be.

        Args:
            running: the batch.
            rooms: as `run` is going to be told.
            token_counts: the same.
            gained: tokens that the requests will have by then, beside those that they have.
        """
        ...


@runtime_checkable
class AheadRunner(EarlyRunner, Protocol):
    """Can begin a step before the host has read the one before."""

    def run_ahead(self, running: Running, rooms: Sequence[int]) -> bool:
        """Begin the step that the next `run` is going to be asked for, and the one behind it.

        False if the second cannot be, of requests without penalties.

        Args:
            running: the batch.
            rooms: as `run` is going to be told for both steps, whatever the first one emits.
        """
        ...

    def drop(self) -> None:
        """Forget what has begun and has not been asked for."""
        ...


@frozen(eq=False)
class EagerRunner:
    """Starts every operation when its turn comes.

    Attributes:
        step: what runs.
    """

    step: DecodeStep

    def gather(self, states: Sequence[RequestState]) -> Running:
        """See `Runner.gather`."""
        return Running.gather(states, self.step.target.device)

    def run(
        self, running: Running, rooms: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        """See `Runner.run`."""
        frontier = Frontier.of(running, rooms)
        draft = self.step.draft(frontier)
        logits = self.step.score(frontier, draft)
        output = self.step.verify(frontier, draft, logits, token_counts)
        return read_verdicts(pack(draft, output), output)
