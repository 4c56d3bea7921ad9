"""One audit: runs the sampler, counts what it emits, compares the counts with the exact laws.

Bounds that hold for every number of draws say what counts prove. Agrawal, "Finite-sample
concentration of the multinomial in relative entropy", IEEE Transactions on Information Theory 66
(2020): for n draws from a law of k outcomes and t > k - 1, n KL(counts / n, law) is at least t with
probability at most (e t / (k - 1))^(k - 1) e^-t.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ...core import PADDING_TOKEN_ID, InvalidInputError
from ...core.checks import INTEGERS, check_integer, check_tensor
from .mistakes import DRAFT_LOGITS, MISTAKES, RIGHT, TARGET_LOGITS, Floats, Mistake, laws

MISSED = 0.01
"""The largest probability that a deviation passes although it is called detectable."""


def log_likelihood_ratio(counts: Floats, law: Floats) -> float:
    """n KL(counts / n, law), [k] each; infinite if an impossible outcome was counted."""
    seen = counts > 0
    if (law[seen] == 0).any():
        return math.inf
    expected = counts.sum() * law[seen]
    return float((counts[seen] * np.log(counts[seen] / expected)).sum())


def largest_ratio(chance: float, num_outcomes: int) -> float:
    """The value that the ratio reaches with at most this probability."""
    freedom, ratio = num_outcomes - 1, 10 * num_outcomes - math.log(chance)
    # Solves the bound for t; each round comes nearer, from above.
    for _ in range(100 if freedom else 0):
        ratio = freedom * (1 + math.log(ratio / freedom)) - math.log(chance)
    return ratio


def detectable_variation(chance: float, num_outcomes: int, num_draws: int) -> float:
    """The total variation from the right law at which a law reaches `largest_ratio`.

    By Pinsker's inequality, and McDiarmid's for how far counts stray from their own law. All
    outcomes that the right law excludes count as one more.
    """
    noticed = math.sqrt(largest_ratio(chance, num_outcomes) / (2 * num_draws))
    strayed = math.sqrt(num_outcomes / num_draws) / 2
    return noticed + strayed + math.sqrt(-math.log(MISSED) / (2 * num_draws))


Step = Callable[[Tensor, Tensor, float, int], Tensor]
"""The audited function: (target_logits, draft_logits, temperature, seed) -> token ids.

It draws a draft token from each row of `draft_logits` [num_steps, K, V] and verifies the draft with
`target_logits` [num_steps, K + 1, V]; both are raw float32. It returns [num_steps, K + 1] integers:
each step's accepted tokens, one more, then -1. Steps are independent, and temperature 0 is greedy.
"""

FALSE_ALARM = 1e-6
"""The largest probability that a correct sampler fails any comparison of an audit."""


@frozen
class Finding:
    """One comparison of counts with a law.

    Attributes:
        view: which tokens were counted.
        ratio: n KL(counts / n, law), the log likelihood ratio.
        limit: chance exceeds it with at most its share of the probability `FALSE_ALARM`.
        detectable: laws of this total variation fail with a probability of at least 0.99.
    """

    temperature: float
    view: str
    ratio: float
    limit: float
    detectable: float

    @property
    def follows(self) -> bool:
        """Whether the counts may come from the law."""
        return self.ratio < self.limit


@frozen
class Audit:
    """The result of an audit.

    Attributes:
        num_steps: how many steps were run at each temperature.
        findings: every comparison with the right law.
        mistakes: if one failed, the known mistakes that fit all counts, the likeliest first.
    """

    num_steps: int
    findings: tuple[Finding, ...]
    mistakes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all counts may come from the target's law."""
        return all(finding.follows for finding in self.findings)


def audit(
    step: Step,
    *,
    num_steps: int = 20_000,
    temperatures: Sequence[float] = (1.0, 0.5, 0.0),
    seed: int = 0,
) -> Audit:
    """Say whether a sampler follows the target's law, and if not, which known mistakes fit.

    Raises:
        InvalidInputError: there is no step or no temperature, or the sampler returns something that
            a step cannot emit.
    """
    check_integer("num_steps", num_steps, 1)
    check_integer("number of temperatures", len(temperatures), 1)
    counts = {t: _counts(step, num_steps, t, seed) for t in temperatures}
    found = Audit(num_steps, _compared(counts, RIGHT))
    if found.passed:
        return found
    others = [(mistake.name, _compared(counts, mistake)) for mistake in MISTAKES]
    fitting = [(name, one) for name, one in others if all(finding.follows for finding in one)]
    fitting.sort(key=lambda named: sum(finding.ratio for finding in named[1]))
    return Audit(num_steps, found.findings, tuple(dict.fromkeys(name for name, _ in fitting)))


def _counts(step: Step, num_steps: int, temperature: float, seed: int) -> Floats:
    """How often each sequence came; the target's law continues after a step's end: [V, V, …]."""
    target, draft = (
        torch.tensor(logits, dtype=torch.float32).repeat(num_steps, 1, 1)
        for logits in (TARGET_LOGITS, DRAFT_LOGITS)
    )
    emitted = step(target, draft, temperature, seed)
    num_rows, vocab_size = TARGET_LOGITS.shape
    check_tensor("token_ids", emitted, (num_steps, num_rows), INTEGERS)
    token_ids = emitted.cpu().numpy()
    _check_emitted(token_ids, vocab_size)
    generator, (rows, _) = np.random.default_rng(num_steps), laws(temperature)
    plain = [generator.choice(vocab_size, num_steps, p=row) for row in rows]
    counts = np.zeros((vocab_size,) * num_rows)
    np.add.at(counts, tuple(np.where(token_ids.T < 0, plain, token_ids.T)), 1.0)
    return counts


def _check_emitted(token_ids: Floats, vocab_size: int) -> None:
    num_used = (token_ids != PADDING_TOKEN_ID).sum(axis=1, keepdims=True)
    # If as many ids come first, all behind them is padding.
    is_first = np.arange(token_ids.shape[1]) < np.maximum(num_used, 1)
    wrong = (is_first & ((token_ids < 0) | (token_ids >= vocab_size))).any(axis=1)
    if wrong.any():
        raise InvalidInputError(
            f"token_ids: expected ids below {vocab_size}, then {PADDING_TOKEN_ID}, "
            f"got {token_ids[wrong][0].tolist()}"
        )


def _compared(counts: dict[float, Floats], mistake: Mistake) -> tuple[Finding, ...]:
    share = FALSE_ALARM / (2 * len(counts))
    findings = []
    for temperature, seen in counts.items():
        law, behind = mistake.law(temperature), tuple(range(1, seen.ndim))
        for view, came, expected in (
            ("first token", seen.sum(axis=behind), law.sum(axis=behind)),
            ("all tokens", seen.ravel(), law.ravel()),
        ):
            ratio, num_outcomes = log_likelihood_ratio(came, expected), int((expected > 0).sum())
            limit = largest_ratio(share, num_outcomes)
            detectable = detectable_variation(share, num_outcomes, int(came.sum()))
            findings.append(Finding(temperature, view, ratio, limit, detectable))
    return tuple(findings)
