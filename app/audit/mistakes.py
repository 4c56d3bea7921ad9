"""The exact laws that samplers emit on small models: correct ones, and those with a known mistake.

A rule decides one row: the mass with which it accepts each token there, and the mass with which it
rejects the draft and recovers each token. Rows do not depend on the tokens before them, so these
masses give the law of whole sequences.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from ...backends.conformance.oracle.law import law_of
from ...core import Recipe

Floats = NDArray[np.float64]

# Chosen so that the laws of all known mistakes differ much.
TARGET_LOGITS = np.array([[2.0, 1.5, 2.5, 0.0], [7.0, 3.5, 0.0, 6.5], [0.0, 3.0, 0.0, 2.5]])
DRAFT_LOGITS = np.array([[6.5, 0.0, 7.5, 6.5], [0.0, 1.5, 6.0, 4.5]])

Laws = tuple[Floats, Floats]
"""Target [K + 1, V] and draft [K, V]; each row sums to 1."""


def laws(target: float, draft: float | None = None, rows: Sequence[int] = (0, 1, 2)) -> Laws:
    """The laws at a temperature, or at two, by the conformance kit's oracle; 0 is greedy.

    `rows` are the target rows that are used.
    """
    of_target = TARGET_LOGITS[list(rows)]
    return _law(of_target, target), _law(DRAFT_LOGITS, target if draft is None else draft)


def _law(logits: Floats, temperature: float) -> Floats:
    return np.exp([law_of(row, Recipe(temperature=temperature)).log_p for row in logits])


Rule = Callable[[Floats, Floats, Floats], tuple[Floats, Floats]]
"""(p, q, the law that drafts are drawn from) -> accepted mass, recovered mass; [V] each."""

Read = Callable[[float], Laws]
"""Temperature -> the laws that drafts are tested with."""


def _chance(p: Floats, q: Floats) -> Floats:
    """The chance that each token is accepted once it is drafted."""
    return np.minimum(p / np.where(q > 0, q, 1.0), 1.0)


def _shares(weights: Floats) -> Floats:
    return weights / weights.sum() if weights.any() else weights


def _residual(p: Floats, q: Floats) -> Floats:
    left = np.maximum(p - q, 0.0)
    return _shares(left) if left.any() else p


def _recovering(weights: Callable[[Floats, Floats], Floats]) -> Rule:
    """Accept with probability p / q, and recover by these weights."""

    def rule(p: Floats, q: Floats, drawn: Floats) -> tuple[Floats, Floats]:
        accepted = drawn * _chance(p, q)
        return accepted, (1 - accepted.sum()) * _shares(weights(p, q))

    return rule


_right = _recovering(_residual)


def _one_hot_residual(p: Floats, q: Floats, drawn: Floats) -> tuple[Floats, Floats]:
    accepted = drawn * _chance(p, q)
    others = np.array([_shares(np.where(row, 0.0, p)) for row in np.eye(len(p))])
    return accepted, (drawn - accepted) @ others


def _most_likely_drafts(p: Floats, q: Floats, drawn: Floats) -> tuple[Floats, Floats]:
    return _right(p, q, np.eye(len(q))[drawn.argmax()])


def _one_uniform(p: Floats, q: Floats, drawn: Floats) -> tuple[Floats, Floats]:
    # The same uniform that rejected also picks from the cumulative sums of the residual.
    chance, ends = _chance(p, q), np.cumsum(_residual(p, q))
    starts = np.concatenate(([0.0], ends[:-1]))
    passed = np.maximum(ends - np.maximum(starts, chance[:, None]), 0.0)
    return drawn * chance, drawn @ passed


def _shared_noise(p: Floats, q: Floats, drawn: Floats) -> tuple[Floats, Floats]:
    # Draft and recovered token both win races with the same exponentials.
    chance, residual = _chance(p, q), _residual(p, q)
    recovered = np.zeros_like(p)
    for drafted in np.flatnonzero(drawn * (1 - chance)).tolist():
        for token in np.flatnonzero(residual).tolist():
            both = _wins_both(drawn / drawn[drafted], residual / residual[token], drafted, token)
            recovered[token] += (1 - chance[drafted]) * both
    return drawn * chance, recovered


NEVER = 1e-150
"""A rate at which nothing arrives."""


def _wins_both(rates: Floats, others: Floats, first: int, second: int) -> float:
    """P(`first` arrives first at some rates, and `second` at others, with the same exponentials E).

    Rates are relative to the winner's. With t = E(second) / E(first) all other E(v) / E(first) are
    above max(rates[v], t others[v]). So t has density 1 / f(t)^2, with f(t) = 1 + t + the sum of
    these maxima, which is piecewise linear.
    """
    rest = np.delete(np.arange(len(rates)), (first, second))
    low, high = rates[second], 1 / max(others[first], NEVER)
    turns = rates[rest] / np.maximum(others[rest], NEVER)
    ends = np.array([low, *np.sort(turns[(low < turns) & (turns < high)]), max(low, high)])
    sums = 1 + ends + np.maximum(rates[rest], np.outer(ends, others[rest])).sum(axis=1)
    return float((np.diff(ends) / sums[:-1] / sums[1:]).sum())


@frozen
class Mistake:
    """A way to decide rows, correct or mistaken, and the law that it leads to.

    Attributes:
        rule: how a row is decided.
        read: the laws that drafts are tested against and bonus tokens are drawn from.
        drafts: the laws that drafts are drawn from.
    """

    name: str
    rule: Rule = _right
    read: Read = laws
    drafts: Read = laws

    def law(self, temperature: float) -> Floats:
        """The law of all rows' tokens; the target's law continues after emitted ones: [V, V, …]."""
        (target, _), (p, q) = laws(temperature), self.read(temperature)
        _, drawn = self.drafts(temperature)
        law: Floats = p[-1]
        for row in reversed(range(len(drawn))):
            accepted, recovered = self.rule(p[row], q[row], drawn[row])
            plain = reduce(np.multiply.outer, target[row + 1 :])
            law = np.multiply.outer(accepted, law) + np.multiply.outer(recovered, plain)
        return law


RIGHT = Mistake("none")

MISTAKES = (
    Mistake("shared noise of draft and verification", _shared_noise),
    Mistake("wrong residual: p", _recovering(lambda p, _: p)),
    Mistake("wrong residual: p where p > q", _recovering(lambda p, q: np.where(p > q, p, 0.0))),
    Mistake("wrong residual: as if q were one-hot", _one_hot_residual),
    Mistake("q that was not drawn from: drafts by argmax", _most_likely_drafts),
    Mistake(
        "q that was not drawn from: drafts by argmax", _most_likely_drafts, lambda t: laws(t, 1.0)
    ),
    Mistake("one uniform for accepting and recovering", _one_uniform),
    Mistake("temperature on one side only: not in p", read=lambda t: laws(1.0, t)),
    Mistake("temperature on one side only: not in q", read=lambda t: laws(t, 1.0)),
    # On a greedy path this is correct.
    Mistake("temperature on one side only: not in p", read=lambda t: laws(float(t > 0), t)),
    Mistake("temperature on one side only: not in q", read=lambda t: laws(t, float(t > 0))),
    Mistake("bonus from the wrong row", read=lambda t: laws(t, rows=(0, 1, 1))),
    Mistake("bonus from the wrong row", read=lambda t: laws(t, rows=(0, 1, 0))),
    Mistake("all rows off by one", read=lambda t: laws(t, rows=(1, 2, 0))),
    # Drafts may be drawn greedily there or not.
    Mistake("greedy row on the sampled path", read=lambda t: laws(t or 1.0, t)),
    Mistake(
        "greedy row on the sampled path",
        read=lambda t: laws(t or 1.0),
        drafts=lambda t: laws(t or 1.0),
    ),
)
"""The mistakes that the audit knows, by name."""
