"""The port that runs a batch's steps, and a runner that starts every operation in turn.

`acceptor.app.engine.cuda_graphs` replays the same step as a CUDA graph.
"""

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from ..decode import DecodeStep
from ..frontier import Frontier, Running
from ..token_masks import fill_masks
from ..verdicts import Verdict, pack, read_verdicts


class Runner(Protocol):
    """Runs steps, and may begin the next one before the host has read the last.

    The default methods begin none.
    """

    @property
    def is_captured(self) -> bool:
        """Whether steps have one draft length, and parts that cannot be timed separately."""
        return False

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        """Draft, score and verify every request of a batch; the step may have begun already.

        Args:
            running: the batch; the same object until the batch changes.
            draft_limits: how many draft tokens are useful to each request.

        Returns:
            One verdict per request, in the order of the batch.
        """

    def begin(self, running: Running, draft_limits: Sequence[int]) -> bool:
        """Begin this step, unless it has begun, and the next one with the same batch and limits.

        Returns:
            Whether the next one has begun. Each is finished by a `run`.
        """
        return False

    def drop(self) -> None:
        """Forget steps that have begun and have not been run."""
        return


@frozen(eq=False)
class EagerRunner(Runner):
    """A `Runner` that begins no step ahead."""

    step: DecodeStep

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        """See `Runner.run`."""
        self.step.catch_up(running.known, draft_limits)
        frontier = Frontier.of(running.known, draft_limits, running.params)
        draft = self.step.draft(frontier)
        # Drafts are read first, so that masks are filled while the target computes.
        drafted = draft.token_ids.tolist() if running.is_masked else None
        scores, masks = self.step.score(frontier, draft), None
        if drafted is not None:
            requests, device = [state.masks for state in running.states], scores.logits.device
            masks = fill_masks(requests, drafted, scores.logits.shape[-1]).to(device)
        output = self.step.verify(frontier, draft, scores, running.token_counts, masks)
        self.step.follow(frontier, draft, scores, output)
        return read_verdicts(pack(draft, output), output)
