"""Every way a random computation can turn out, with its exact probability.

A run asks its branch to choose whenever chance decides, and is run again until every choice has
been made in every way. Random numbers of the reference sampler are replaced by hidden uniforms.

Each counter of the real generator (seed, stream, position, draft index) stands for one unknown
uniform. A draw splits [0, 1) in proportion to its weights and learns which part the uniform is in;
a verdict learns on which side of its threshold it is. Numbers that are used twice stay the same
number, so every dependence that the wiring creates is kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar

import pytest
import torch
from attrs import define, field, frozen
from torch import Tensor

from acceptor.backends.reference import draw as real
from acceptor.core.randomness import Level, Stream

Outcome = TypeVar("Outcome")
Path = tuple[int, ...]
Interval = tuple[float, float]
EVERYTHING: Interval = (0.0, 1.0)
# Parts this small are the rounding of a border that two draws share.
SLIVER = 1e-14


@define
class Branch:
    """One way through a run.

    Attributes:
        path: the choices to repeat; behind them, the first possible one is taken.
        probability: of all choices made so far.
        taken: the choices made so far.
        left: the paths that lead to what was not taken.
    """

    path: Path = ()
    probability: float = 1.0
    taken: list[int] = field(factory=list)
    left: list[Path] = field(factory=list)

    def choose(self, probabilities: Sequence[float]) -> int:
        """Let chance decide: the index of what happens in this branch."""
        place = len(self.taken)
        if place < len(self.path):
            choice = self.path[place]
        else:
            choice, *others = [index for index, mass in enumerate(probabilities) if mass > 0]
            self.left.extend((*self.taken, other) for other in others)
        self.taken.append(choice)
        self.probability *= probabilities[choice]
        return choice


def branches(run: Callable[[Branch], Outcome]) -> Iterator[tuple[float, Outcome]]:
    """Probability and outcome of every branch of a run."""
    paths: list[Path] = [()]
    while paths:
        branch = Branch(paths.pop())
        outcome = run(branch)
        paths.extend(branch.left)
        yield branch.probability, outcome


@frozen
class Counter:
    """What a random number is for."""

    seed: int
    stream: int
    position: int
    draft_index: int


@define
class HiddenNoise:
    """What one branch has learnt about the hidden uniforms.

    Attributes:
        horizon: from this position on nothing matters, and chance is not asked.
        branch: where chance decides.
        known: the part of [0, 1) each uniform is known to lie in.
        used: the counters asked for, by all branches.
    """

    horizon: int
    branch: Branch = field(factory=Branch)
    known: dict[Counter, Interval] = field(factory=dict)
    used: set[Counter] = field(factory=set)

    def begin(self, branch: Branch, known: Iterable[tuple[Counter, Interval]]) -> None:
        """Forget one branch and enter another."""
        self.branch, self.known = branch, dict(known)

    def part_of(self, counter: Counter, borders: list[float]) -> int:
        """Learn which of the parts between borders a uniform is in."""
        self.used.add(counter)
        low, high = self.known.get(counter, EVERYTHING)
        parts = [(max(a, low), min(b, high)) for a, b in pairwise(borders)]
        masses = [b - a if b - a > SLIVER else 0.0 for a, b in parts]
        if counter.position >= self.horizon:
            return masses.index(max(masses))
        choice = self.branch.choose([mass / (high - low) for mass in masses])
        self.known[counter] = parts[choice]
        return choice

    def race(self, log_weights: Tensor, words: Callable[[Level, Tensor], "Counters"]) -> Tensor:
        """In place of `acceptor.core.race.race`."""
        counters = words(Level.TOKEN, torch.zeros(len(log_weights), 1, dtype=torch.int64))
        ends = (log_weights - log_weights.amax(-1, keepdim=True)).exp().cumsum(-1)
        borders = (ends / ends[:, -1:]).tolist()
        rows = zip(counters, borders, strict=True)
        drawn = [self.part_of(counter, [0.0, *row]) for counter, row in rows]
        return torch.tensor(drawn, dtype=torch.int64)

    def uniforms(self, counters: "Counters") -> "HiddenUniforms":
        """In place of `acceptor.core.randomness.acceptance_uniform`."""
        return HiddenUniforms(self, counters)


class Counters(tuple[Counter, ...]):
    """In place of random words: what they would have been made of, one per row."""

    __slots__ = ()

    def squeeze(self, _dim: int) -> "Counters":
        """Of one candidate per row."""
        return self


@frozen
class HiddenUniforms:
    """Uniforms that can be compared with thresholds, and nothing else."""

    noise: HiddenNoise
    counters: Counters

    def log(self) -> "HiddenUniforms":
        """Thresholds are logarithms too."""
        return self

    def __lt__(self, log_thresholds: Tensor) -> Tensor:
        thresholds = log_thresholds.exp().clamp(max=1.0).tolist()
        below = [
            self.noise.part_of(counter, [0.0, threshold, 1.0]) == 0
            for counter, threshold in zip(self.counters, thresholds, strict=True)
        ]
        return torch.tensor(below)


def random_counters(
    seeds: Tensor,
    positions: Tensor,
    draft_indices: Tensor,
    stream: Stream,
    _level: Level,
    _candidates: Tensor,
) -> Counters:
    """In place of `acceptor.core.randomness.random_words`."""
    rows = zip(seeds.tolist(), positions.tolist(), draft_indices.tolist(), strict=True)
    return Counters(Counter(seed, int(stream), position, index) for seed, position, index in rows)


@contextmanager
def replaced_by(noise: HiddenNoise) -> Iterator[None]:
    """Let the reference sampler draw from hidden noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "random_words", random_counters)
        patch.setattr(real, "race", noise.race)
        patch.setattr(real, "acceptance_uniform", noise.uniforms)
        yield
