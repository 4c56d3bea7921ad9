"""All planted bugs, and the batches in which each shows soon; refuses to look for them."""

from attrs import evolve
from hypothesis.strategies import SearchStrategy

from acceptor.backends.conformance import Case, cases, policies
from acceptor.backends.conformance.strategies import POLICIES
from kit.wrong_backends import WRONG_DRAWS, WRONG_LAWS, WrongSampler
from kit.wrong_decisions import WRONG_BATCHES, WRONG_POLICIES

ONLY_CORNERS_SHOW = {"u rounds to 1", "u <= threshold with u from 0"}
_ALL = (*WRONG_DRAWS, *WRONG_LAWS, *WRONG_POLICIES, *WRONG_BATCHES)
SHOWN_BY_BATCHES = [wrong for wrong in _ALL if wrong.name not in ONLY_CORNERS_SHOW]
SHOWN_BY_CORNERS = [wrong for wrong in _ALL if wrong.name in ONLY_CORNERS_SHOW]


def batches_for(wrong: WrongSampler) -> SearchStrategy[Case]:
    """Small ones that have what a bug needs to show."""
    names = [*POLICIES] if wrong.policy is None else [wrong.policy]

    def showing(case: Case) -> Case:
        return evolve(
            case,
            features=case.features | wrong.features,
            vocab_size=max(case.vocab_size, wrong.least_vocab_size),
        )

    return cases(policies(names), largest_vocabulary=600).map(showing)
