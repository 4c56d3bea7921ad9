"""Every way a random computation can turn out, with its exact probability.

A run asks its branch to choose whenever chance decides. It is run again until every choice has been
made in every way.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from attrs import define, field

Outcome = TypeVar("Outcome")
Path = tuple[int, ...]


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
