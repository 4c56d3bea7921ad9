"""Says once that next to nothing of what a draft head proposes is accepted.

A head that is read with a wrong switch does not fail: it drafts nonsense, exactly.
"""

import logging
from collections.abc import Sequence

from attrs import define, field

from ..core.statistics import AcceptanceStatistics
from .request_state import Verdict

NUM_DRAFTS = 256
LEAST_RATE = 0.05

_logger = logging.getLogger(__name__)


@define(eq=False)
class AcceptanceWatch:
    """What became of the first drafts.

    Attributes:
        statistics: of them; complete once there are `NUM_DRAFTS`.
    """

    statistics: AcceptanceStatistics = field(factory=AcceptanceStatistics)

    def observe(self, verdicts: Sequence[Verdict], what_to_check: str) -> None:
        """Count the drafts of a step, and speak up after the last that counts."""
        figures = self.statistics
        for verdict in verdicts:
            if figures.num_drafts == NUM_DRAFTS:
                return
            figures.observe(verdict.num_draft_tokens, verdict.num_accepted)
            if figures.num_drafts == NUM_DRAFTS and figures.acceptance_rate < LEAST_RATE:
                _logger.warning(
                    "draft head: %.1f %% of the first %d drafts were accepted; check %s",
                    100 * figures.acceptance_rate,
                    NUM_DRAFTS,
                    what_to_check,
                )
