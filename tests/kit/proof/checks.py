"""The checks of the proof by name: what each measures, and how much is too much.

Tests run them on the code as it is, and once more on planted bugs.
"""

from collections.abc import Callable, Mapping
from functools import partial

from attrs import frozen

from acceptor.core import Fly
from kit.bugs import Bug
from kit.bugs_in_batches import ALL_BUGS
from kit.proof.cases import LOSSLESS, LOSSY, ONE_HOT, Pair
from kit.proof.exact import EXACT, law_error
from kit.proof.reported import loss_of


@frozen
class Evidence:
    """What a check measured.

    Attributes:
        value: decides.
        limit: the check passes up to here.
        parts: what else is worth a look.
    """

    value: float
    limit: float
    parts: Mapping[str, float] = {}

    @property
    def passed(self) -> bool:
        """Whether the code under test stands."""
        return self.value <= self.limit


Check = Callable[[], Evidence]


def _exact_law(pair: Pair) -> Evidence:
    error = law_error(pair.setup, pair.num_tokens)
    parts = {"first": error.first, "joint": error.joint, "conditional": error.conditional}
    return Evidence(max(parts.values()), EXACT, parts)


def _honest_loss(pair: Pair) -> Evidence:
    loss = loss_of(pair.setup)
    parts = {"enumerated": loss.enumerated, "reported": loss.reported}
    return Evidence(abs(loss.enumerated - loss.reported), EXACT, parts)


EXACT_LAWS: dict[str, Check] = {
    f"exact law: {pair.name}": partial(_exact_law, pair) for pair in LOSSLESS
}
# FLy judges a draft by what follows it, so its report is exact only for one-hot drafts.
HONEST_LOSSES: dict[str, Check] = {
    f"honest loss: {pair.name}": partial(_honest_loss, pair)
    for pair in LOSSY
    if not isinstance(pair.policy, Fly) or pair.drafter in ONE_HOT
}


def evidence_of(bug: Bug) -> Evidence:
    """What its check measures while a planted bug lives."""
    with bug.planted():
        return EXACT_LAWS[f"exact law: {bug.check}"]()


CAUGHT = tuple(bug for bug in ALL_BUGS if bug.check is not None)
"""The planted bugs that change a law."""
