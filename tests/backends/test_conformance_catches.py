"""The conformance kit finds what it is for: every planted bug, soon."""

import pytest
import torch

from acceptor.backends.conformance import first_failure, run_corners
from kit.planted_bugs import SHOWN_BY_BATCHES, SHOWN_BY_CORNERS, batches_for
from kit.wrong_backends import WrongSampler

CPU = torch.device("cpu")


@pytest.mark.parametrize("wrong", SHOWN_BY_BATCHES, ids=lambda wrong: wrong.name)
def test_random_batches_show_a_planted_bug(wrong: WrongSampler) -> None:
    assert first_failure(wrong, CPU, 0, 300, batches_for(wrong), shrink=False) is not None


@pytest.mark.parametrize("wrong", SHOWN_BY_CORNERS, ids=lambda wrong: wrong.name)
def test_corners_show_what_one_random_word_in_millions_does(wrong: WrongSampler) -> None:
    assert run_corners(wrong, CPU).failures != []
