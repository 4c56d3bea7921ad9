"""The checks of the proof by name: what each measures, and how much is too much.

Tests run them on the code as it is, and once more on planted bugs.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from attrs import frozen

from acceptor.backends import load_sampler
from acceptor.backends.conformance import Case, run_case
from acceptor.backends.conformance.calls import Backend, Watched
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.run import run_all
from acceptor.core import Fly, Probabilistic
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


def _edge(name: str) -> Evidence:
    return Evidence(wrong_in(name, load_sampler("reference"), torch.device("cpu")), 0)


def wrong_in(name: str, sampler: Backend, device: torch.device) -> int:
    """How often a sampler errs where the right token is known, so that one is too many."""
    if name == "slots":
        return len(run_case(IN_OTHER_SLOTS, sampler, device).differences)
    here = [check for about, check in corners() if name in about]
    assert here
    shown = [run_all(check, [Watched(sampler, device)])[0] for check in here]
    return sum(len(found.differences) for found in shown)


IN_OTHER_SLOTS = Case(
    seed=4,
    vocab_size=40,
    num_draft_tokens=(2,) * 20,
    policy=Probabilistic(),
    features=frozenset(("slots",)),
    variation="in part",
)
EDGES = ("rare candidate", "lowest uniform", "highest uniform", "ties", "reached exactly", "slots")
"""What chance almost never asks: parts of names of the conformance kit's corners, and slots."""

EXACT_LAWS: dict[str, Check] = {
    f"exact law: {pair.name}": partial(_exact_law, pair) for pair in LOSSLESS
}
# FLy judges a draft by what follows it, so its report is exact only for one-hot drafts.
HONEST_LOSSES: dict[str, Check] = {
    f"honest loss: {pair.name}": partial(_honest_loss, pair)
    for pair in LOSSY
    if not isinstance(pair.policy, Fly) or pair.drafter in ONE_HOT
}
EDGE_CHECKS: dict[str, Check] = {f"edge: {name}": partial(_edge, name) for name in EDGES}
CHECKS = EXACT_LAWS | HONEST_LOSSES | EDGE_CHECKS


def evidence_of(bug: Bug) -> Evidence:
    """What its check measures while a planted bug lives."""
    assert bug.check is not None
    with bug.planted():
        return CHECKS[bug.check]()


CAUGHT = tuple(bug for bug in ALL_BUGS if bug.check is not None)
"""The planted bugs that change a law."""
