"""The conformance kit finds what it is for: every planted bug, soon."""

import pytest
import torch
from attrs import evolve
from hypothesis.strategies import SearchStrategy

from acceptor.backends.conformance import Case, cases, first_failure, policies, run_corners
from acceptor.backends.conformance.strategies import POLICIES
from kit.wrong_backends import WRONG_DRAWS, WRONG_LAWS, WrongSampler
from kit.wrong_decisions import WRONG_BATCHES, WRONG_POLICIES

CPU = torch.device("cpu")
ONLY_CORNERS_SHOW = {"u rounds to 1", "u <= threshold with u from 0"}
WRONG = (*WRONG_DRAWS, *WRONG_LAWS, *WRONG_POLICIES, *WRONG_BATCHES)


@pytest.mark.parametrize(
    "wrong",
    [wrong for wrong in WRONG if wrong.name not in ONLY_CORNERS_SHOW],
    ids=lambda wrong: wrong.name,
)
def test_random_batches_show_a_planted_bug(wrong: WrongSampler) -> None:
    assert first_failure(wrong, CPU, 0, 300, batches_for(wrong), shrink=False) is not None


@pytest.mark.parametrize(
    "wrong",
    [wrong for wrong in WRONG if wrong.name in ONLY_CORNERS_SHOW],
    ids=lambda wrong: wrong.name,
)
def test_corners_show_what_one_random_word_in_millions_does(wrong: WrongSampler) -> None:
    assert run_corners(wrong, CPU).failures != []


def batches_for(wrong: WrongSampler) -> SearchStrategy[Case]:
    names = [*POLICIES] if wrong.policy is None else [wrong.policy]

    def showing(case: Case) -> Case:
        return evolve(
            case,
            features=case.features | wrong.features,
            vocab_size=max(case.vocab_size, wrong.least_vocab_size),
        )

    return cases(policies(names), largest_vocabulary=600).map(showing)
