"""The checks of the proof by name: what each measures, and how much is too much.

Tests run them on the code as it is, and once more on planted bugs.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from attrs import frozen

from acceptor.backends import load_sampler
from acceptor.backends.conformance.calls import Backend
from acceptor.core import Fly
from kit.bugs import Bug
from kit.bugs_in_batches import ALL_BUGS
from kit.proof import edges
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


@frozen
class Check:
    """One claim about the code.

    Attributes:
        name: by which tests and tables refer to it.
        measure: looks at the code as it is now.
    """

    name: str
    measure: Callable[[], Evidence]


def _exact_law(pair: Pair) -> Check:
    def measure() -> Evidence:
        error = law_error(pair.setup, pair.num_tokens)
        parts = {"first": error.first, "joint": error.joint, "conditional": error.conditional}
        return Evidence(max(parts.values()), EXACT, parts)

    return Check(f"exact law: {pair.name}", measure)


def _honest_loss(pair: Pair) -> Check:
    def measure() -> Evidence:
        loss = loss_of(pair.setup)
        parts = {"enumerated": loss.enumerated, "reported": loss.reported}
        return Evidence(abs(loss.enumerated - loss.reported), EXACT, parts)

    return Check(f"honest loss: {pair.name}", measure)


def _edge(name: str, count: Callable[[Backend, torch.device], int]) -> Check:
    def measure() -> Evidence:
        wrong = count(load_sampler("reference"), torch.device("cpu"))
        return Evidence(wrong, 0)

    return Check(f"edge: {name}", measure)


def reports_exactly(pair: Pair) -> bool:
    """FLy judges a draft by what follows it, so its report is exact only for one-hot drafts."""
    return not isinstance(pair.policy, Fly) or pair.drafter in ONE_HOT


EDGES: dict[str, Callable[[Backend, torch.device], int]] = {
    "rare exponentials, V = 151,936": edges.wrong_tails,
    "lowest uniform": partial(edges.wrong_in, "lowest uniform"),
    "highest uniform": edges.wrong_at_the_highest_uniform,
    "ties": partial(edges.wrong_in, "ties"),
    "top-p at equality": partial(edges.wrong_in, "reached exactly"),
    "slots": edges.changed_by_slots,
}
EXACT_LAWS = tuple(map(_exact_law, LOSSLESS))
HONEST_LOSSES = tuple(_honest_loss(pair) for pair in LOSSY if reports_exactly(pair))
CHECKS: dict[str, Check] = {
    check.name: check
    for check in (*EXACT_LAWS, *HONEST_LOSSES, *(_edge(*edge) for edge in EDGES.items()))
}


def evidence_of(bug: Bug) -> Evidence:
    """What its check measures while a planted bug lives."""
    assert bug.check is not None
    with bug.planted():
        return CHECKS[bug.check].measure()


CAUGHT = tuple(bug for bug in ALL_BUGS if bug.check is not None)
"""The planted bugs that change a law."""
