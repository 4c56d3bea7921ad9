"""How far drafts are accepted: one chance per place, and what follows from it.

A draft's places are accepted in order, so the chance of each, given those before it, describes
drafts of any length. Under block verification, too, the share of drafts accepted through a place
does not depend on the tokens drafted after it.
"""

from collections.abc import Iterable
from itertools import accumulate, pairwise
from operator import mul

import numpy as np
from attrs import frozen


@frozen
class AcceptanceProfile:
    """Chances of acceptance by place.

    Attributes:
        conditional: for each place, the chance of its token given that all before it were accepted.
            Later places have the chance of the last one.
        num_offered: for each place, how many drafts the chance was counted over.
    """

    conditional: tuple[float, ...]
    num_offered: tuple[int, ...]

    @classmethod
    def of(cls, drafts: Iterable[tuple[int, int]]) -> "AcceptanceProfile":
        """Count drafts of any lengths, each (num_draft_tokens, num_accepted)."""
        drafted, accepted = np.array([(0, 0), *drafts]).T
        places = np.arange(drafted.max())[:, None]
        num_offered = (places < np.minimum(accepted + 1, drafted)).sum(axis=1)
        num_offered = num_offered[num_offered > 0]
        num_kept = (places < accepted).sum(axis=1)[: len(num_offered)]
        return cls(tuple((num_kept / num_offered).tolist()), tuple(num_offered.tolist()))

    def chance(self, place: int) -> float:
        """The chance of the token at a place, from 0 on, given that all before it were accepted."""
        return self.conditional[min(place, len(self.conditional) - 1)] if self.conditional else 0.0

    def through(self, num_spec_tokens: int) -> list[float]:
        """For each place of a draft of K tokens, the share of drafts accepted through it."""
        return list(accumulate(map(self.chance, range(num_spec_tokens)), mul))

    def law_of_accepted(self, num_spec_tokens: int) -> list[float]:
        """The chances that 0, 1, …, K tokens of a draft are accepted."""
        through = [1.0, *self.through(num_spec_tokens), 0.0]
        return [here - behind for here, behind in pairwise(through)]


def steps_for(profile: AcceptanceProfile, num_spec_tokens: int, output_len: int) -> float:
    """How many steps an output of this many tokens takes on average.

    The last drafts of an output are shorter, because fewer tokens are left.
    """
    laws = [profile.law_of_accepted(length) for length in range(num_spec_tokens + 1)]
    steps = [0.0]
    for left in range(1, output_len + 1):
        law = laws[min(num_spec_tokens, left - 1)]
        steps.append(1 + sum(share * steps[left - 1 - num] for num, share in enumerate(law)))
    return steps[output_len]
