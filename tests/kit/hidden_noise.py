"""Every way a random computation can turn out, with its exact probability.

A run asks its branch to choose whenever chance decides, and runs again until every choice has been
made in every way. Hidden uniforms replace the random numbers of the reference sampler.

Each counter of the real generator (seed, stream, position, draft index) stands for one unknown
uniform. A draw splits [0, 1) in proportion to its weights and learns which part the uniform is in;
a verdict learns on which side of its threshold it is. A number that is used twice stays the same
number, so every dependence that the wiring creates is kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from attrs import define, field, frozen
from torch import Tensor

from acceptor.backends.reference import draw as real
from acceptor.core.randomness import Level, Stream

Outcome = TypeVar("Outcome")
Path = tuple[int, ...]
Interval = tuple[float, float]
EVERYTHING: Interval = (0.0, 1.0)
# Parts this small come from rounding a border that two draws share.
SLIVER = 1e-14


@define
class Branch:
    """One way through a run.

    Attributes:
        path: the choices to repeat; after them, the first possible one is taken.
        probability: that of all choices so far.
        taken: the choices so far.
        left: the paths to choices that were not taken.
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
    """Identifies a random number."""

    seed: int
    stream: int
    position: int
    draft_index: int


@define
class HiddenNoise:
    """What one branch has learnt about the hidden uniforms.

    Attributes:
        horizon: from this position on nothing matters, so nothing is chosen.
        branch: makes the choices.
        known: the part of [0, 1) that each uniform is known to lie in.
        used: the counters that any branch has used.
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
        """Replaces `acceptor.core.race.race`."""
        counters = words(Level.TOKEN, torch.zeros(len(log_weights), 1, dtype=torch.int64))
        ends = (log_weights - log_weights.amax(-1, keepdim=True)).exp().cumsum(-1)
        rows = zip(counters, (ends / ends[:, -1:]).tolist(), strict=True)
        drawn = [self.part_of(counter, [0.0, *row]) for counter, row in rows]
        return torch.tensor(drawn, dtype=torch.int64)

    def uniforms(self, counters: "Counters") -> "HiddenUniforms":
        """Replaces `acceptor.core.randomness.acceptance_uniform`."""
        return HiddenUniforms(self, counters)


class Counters(tuple[Counter, ...]):
    """Replaces random words: holds the counters that they would be made from, one per row."""

    __slots__ = ()

    def squeeze(self, _dim: int) -> "Counters":
        """The counters of one candidate per row."""
        return self


@frozen
class HiddenUniforms:
    """Uniforms that can be compared with thresholds, and nothing else."""

    noise: HiddenNoise
    counters: Counters

    def log(self) -> "HiddenUniforms":
        """Itself: thresholds are logarithms, too."""
        return self

    def __lt__(self, log_thresholds: Tensor) -> Tensor:
        thresholds = log_thresholds.exp().clamp(max=1.0).tolist()
        below = [
            self.noise.part_of(counter, [0.0, threshold, 1.0]) == 0
            for counter, threshold in zip(self.counters, thresholds, strict=True)
        ]
        return torch.tensor(below)


def random_counters(
    seeds: Tensor, positions: Tensor, draft_indices: Tensor, stream: Stream, *_: object
) -> Counters:
    """Replaces `acceptor.core.randomness.random_words`."""
    rows = zip(seeds.tolist(), positions.tolist(), draft_indices.tolist(), strict=True)
    return Counters(Counter(seed, int(stream), position, index) for seed, position, index in rows)


def replaced_by(noise: HiddenNoise) -> Any:
    """Let the reference sampler draw from hidden noise."""
    return patch.multiple(
        real, random_words=random_counters, race=noise.race, acceptance_uniform=noise.uniforms
    )
