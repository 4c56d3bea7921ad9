"""Counts of what decode runs emit, beside what the target's law expects.

First tokens, whole sequences, and tokens given the one before them after a rejection, for models
that look one token back.
"""

from functools import reduce
from operator import add

import torch
from attrs import frozen
from torch import Tensor

from acceptor.core import Policy
from kit.many_seeds import spread_seeds
from kit.proof.goodness import Goodness, goodness
from kit.proof.pace import UNHURRIED, Pace
from kit.proof.runs import Chain, Runs, Step, decode

PARTS = 40
"""How many p-values one comparison gives beside that of the whole."""


@frozen(eq=False)
class Frequencies:
    """Observed counts and the expected law, for the three views of a run.

    Attributes:
        first: [vocab_size] counts of first tokens.
        joint: [vocab_size ** num_tokens] of sequences.
        conditional: [vocab_size, vocab_size] of the first token of the second step, given the last
            one of the first step, where that rejected a draft.
    """

    first: Tensor
    joint: Tensor
    conditional: Tensor

    def __add__(self, other: "Frequencies") -> "Frequencies":
        return Frequencies(
            self.first + other.first,
            self.joint + other.joint,
            self.conditional + other.conditional,
        )


@frozen(eq=False)
class Comparison:
    """Frequencies of one policy, the law, and the tests between them.

    Attributes:
        observed: over all runs.
        expected: probabilities.
        tests: of each of the three views.
        p_values: of the sequences in equal parts of the runs, each tested alone.
    """

    observed: Frequencies
    expected: Frequencies
    tests: dict[str, Goodness]
    p_values: list[float]


def compare(
    chain: Chain,
    policy: Policy,
    step: Step,
    num_runs: int,
    device: torch.device,
    chunk: int = 1 << 16,
    pace: Pace = UNHURRIED,
) -> Comparison:
    """Run num_runs requests, or as many as there is time for, and test what they emit."""
    here, expected = chain.to(device), law_of(chain)
    counted: list[Frequencies] = []
    for begin, num_reqs in pace.batches(num_runs, chunk, policy.name):
        seeds = spread_seeds(num_reqs, begin, device)
        runs = decode(here, policy, seeds, step)
        size = -(-num_reqs * PARTS // num_runs)
        counted += [_count(here, part) for part in runs.split(-(-num_reqs // size))]
    observed = reduce(add, counted)
    names = ("first", "joint", "conditional")
    tests = {
        name: goodness(getattr(observed, name).numpy(), getattr(expected, name).numpy())
        for name in names
    }
    p_values = [
        goodness(part.joint.numpy(), expected.joint.numpy()).p_chi_square for part in counted
    ]
    return Comparison(observed, expected, tests, p_values)


def law_of(chain: Chain) -> Frequencies:
    """What the target's law gives, by multiplication."""
    probs = processed(chain)
    law = probs[-1]
    for _ in range(chain.num_tokens - 1):
        law = law[..., None] * probs[:-1]
    return Frequencies(probs[-1], law.flatten(), probs[:-1])


def processed(chain: Chain) -> Tensor:
    """The target's law after every token; temperature only, or top-k by the oracle."""
    scaled = chain.target.double() / chain.params.temperature
    if chain.params.top_k > 0:
        kept = scaled.topk(chain.params.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < kept, -torch.inf)
    return scaled.softmax(dim=-1)


def _count(chain: Chain, runs: Runs) -> Frequencies:
    size, power = chain.vocab_size, chain.num_tokens
    code = torch.zeros_like(runs.token_ids[:, 0])
    for column in runs.token_ids.T:
        code = code * size + column
    again = runs.again[runs.again[:, 0] >= 0]
    pairs = again[:, 0] * size + again[:, 1]
    return Frequencies(
        first=runs.token_ids[:, 0].bincount(minlength=size).cpu(),
        joint=code.bincount(minlength=size**power).cpu(),
        conditional=pairs.bincount(minlength=size**2).view(size, size).cpu(),
    )


def random_chain(vocab_size: int, *, seed: int = 3) -> Chain:
    """Random models of which the draft resembles the target a little."""
    generator = torch.Generator().manual_seed(seed)
    shape = (vocab_size + 1, vocab_size)
    target = torch.randn(shape, generator=generator)
    draft = 0.5 * target + 0.8 * torch.randn(shape, generator=generator)
    return Chain(target, draft)
