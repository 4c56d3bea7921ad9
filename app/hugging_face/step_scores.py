"""Scores by step, as transformers returns them, of rows that are not in the same step."""

from attrs import define, field
from torch import Tensor


@define(eq=False)
class StepScores:
    """What rows were scored with.

    Attributes:
        num_rows: of the batch.
        steps: of each emitted place [num_rows, vocab_size] float32, 0 for rows that have ended.
    """

    num_rows: int
    steps: list[Tensor] = field(factory=list, init=False)

    def add(self, index: int, first: int, scores: Tensor) -> None:
        """Put a row's scores [num_steps, vocab_size] at its places from the first on."""
        for step, one in enumerate(scores, first):
            if step == len(self.steps):
                self.steps.append(one.new_zeros((self.num_rows, len(one))).float())
            self.steps[step][index] = one

    def end(self, index: int, num_steps: int) -> None:
        """Forget what a row has behind its end."""
        for step in self.steps[num_steps:]:
            step[index] = 0
