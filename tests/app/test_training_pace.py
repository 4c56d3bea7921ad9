"""How long training goes on, and how its learning rate moves."""

import pytest
import torch
from transformers import (
    get_cosine_with_min_lr_schedule_with_warmup,
)

from acceptor.app.training.pace import Budget, Pace, rate_share
from acceptor.app.training.train import Point, evaluations_since_best


def test_time_and_steps_both_end_a_pace_and_anneal_it() -> None:
    now = [100.0]
    assert list(Pace(4, 2, Budget())) == [0, 0.25, 0.5, 0.75]
    whole = Budget(10, lambda: now[0])
    now[0] += 2
    timed = Pace(100, 30, whole.part(0.5))
    shares, due = [], []
    for progress in timed:
        shares.append(progress)
        now[0] += 0.7
        if timed.is_due():
            due.append(timed.step)
            timed.note_evaluation()
    assert shares == pytest.approx([0, 0.7 / 3, 1.4 / 3, 2.1 / 3, 2.8 / 3])
    assert due == [1, 2, 3, 4, 5]
    assert list(Pace(3, 1, whole.part(0.5))) == [1.0]


def test_what_was_never_evaluated_is_at_the_end() -> None:
    short = Pace(3, 10, Budget())
    assert [short.is_due() for _ in short] == [False] * 3
    assert short.is_last_due()
    short.note_evaluation()
    assert not short.is_last_due()


def test_learning_rates_are_those_of_the_usual_schedule() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    usual = get_cosine_with_min_lr_schedule_with_warmup(optimizer, 65, 1300, min_lr_rate=0.05)
    for step in range(0, 1300, 10):
        (factor,) = (rate(step) for rate in usual.lr_lambdas)
        assert rate_share(step / 1300) == pytest.approx(factor)


def test_patience_counts_from_the_best_evaluation() -> None:
    losses = (3.0, 2.0, 2.5, 2.0, 4.0)
    curve = [Point(step, 0.0, loss) for step, loss in enumerate(losses)]
    assert [evaluations_since_best(curve[:end]) for end in range(1, 6)] == [0, 0, 1, 2, 3]
