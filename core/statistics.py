"""Acceptance statistics, in the field's terms."""

from collections.abc import Sequence

from attrs import define, field

from .checks import check_integers


@define
class AcceptanceStatistics:
    """Counts over the drafts verified so far.

    Attributes:
        num_drafts: verified drafts of at least one token.
        num_draft_tokens: tokens in them.
        num_accepted_tokens: of those, the accepted ones.
        num_accepted_per_pos: for each place in the draft, how many drafts were accepted through it.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_per_pos: list[int] = field(factory=list)

    def observe(self, num_draft_tokens: int, num_accepted: int) -> None:
        """Count one verified draft; a step without draft tokens is no draft.

        Raises:
            InvalidInputError: a number is negative, or more tokens were accepted than drafted.
        """
        # Runs for each request in every step, and nearly all fit.
        are_plain = type(num_draft_tokens) is int and type(num_accepted) is int
        if not are_plain or not 0 <= num_accepted <= num_draft_tokens:
            check_integers("num_draft_tokens", (num_draft_tokens,), 0)
            check_integers("num_accepted", (num_accepted,), 0, num_draft_tokens)
        if num_draft_tokens == 0:
            return
        self.num_drafts += 1
        self.num_draft_tokens += num_draft_tokens
        self.num_accepted_tokens += num_accepted
        missing = num_draft_tokens - len(self.num_accepted_per_pos)
        self.num_accepted_per_pos.extend([0] * missing)
        for place in range(num_accepted):
            self.num_accepted_per_pos[place] += 1

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0 before the first draft."""
        return self.num_accepted_tokens / max(self.num_draft_tokens, 1)

    @property
    def acceptance_length(self) -> float:
        """Tokens per draft including the recovered or bonus token, in [1, K + 1]."""
        return 1 + self.num_accepted_tokens / max(self.num_drafts, 1)

    @property
    def acceptance_rate_per_pos(self) -> Sequence[float]:
        """The share of drafts accepted through each place."""
        return [count / self.num_drafts for count in self.num_accepted_per_pos]
