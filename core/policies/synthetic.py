"""Synthetic verification: tokens survive at set rates, whatever the models say.

It measures an engine at an acceptance rate without a model pair that reaches it. The output does
not follow the target.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul
from typing import ClassVar

import torch
from attrs import field, frozen
from torch import Tensor

from ..checks import check_integers, check_number, plain_number
from ..errors import InvalidInputError
from .policy import DraftView, Policy

DEFAULT_DECAY = 0.85
"""How much the conditional rate falls from one place in the draft to the next."""


def _plain_numbers(rates: Iterable[float]) -> tuple[float, ...]:
    try:
        return tuple(map(plain_number, rates))
    except TypeError:
        raise InvalidInputError(f"rates: expected a sequence of numbers, got {rates!r}") from None


@frozen
class Synthetic(Policy):
    """Accept token i, if all before it were, with probability rates[i] / rates[i - 1].

    Attributes:
        rates: unconditional rates: the share of drafts accepted through each place, never rising.
            Tokens beyond the list are never accepted.

    Raises:
        InvalidInputError: a rate is no number in [0, 1], or larger than the one before it.
    """

    rates: tuple[float, ...] = field(converter=_plain_numbers)

    name: ClassVar[str] = "synthetic"
    lossless: ClassVar[bool] = False
    uses_draft_probs: ClassVar[bool] = False
    greedy_is_strict: ClassVar[bool] = False

    def __attrs_post_init__(self) -> None:
        for place, rate in enumerate(self.rates):
            check_number(f"rates[{place}]", rate, 0, 1)
            if place and rate > self.rates[place - 1]:
                raise InvalidInputError(
                    f"rates[{place}]: expected at most the rate before it, "
                    f"{self.rates[place - 1]}, got {rate}"
                )

    @classmethod
    def from_acceptance_rate(cls, acceptance_rate: float, num_spec_tokens: int) -> "Synthetic":
        """Rates whose mean is the given one, with geometrically falling conditional rates.

        Raises:
            InvalidInputError: the rate is outside [0, 1], or the number of tokens below 0.
        """
        check_integers("num_spec_tokens", (num_spec_tokens,), 0)
        acceptance_rate = plain_number(acceptance_rate)
        check_number("acceptance_rate", acceptance_rate, 0, 1)
        return cls(_decaying_rates(acceptance_rate, num_spec_tokens))

    @classmethod
    def from_acceptance_length(cls, acceptance_length: float, num_spec_tokens: int) -> "Synthetic":
        """Rates under which a draft of num_spec_tokens yields this many tokens on average.

        Args:
            acceptance_length: includes the recovered or bonus token: in [1, num_spec_tokens + 1].
            num_spec_tokens: the draft's length K.

        Raises:
            InvalidInputError: the length is out of its range, or the number of tokens below 0.
        """
        check_integers("num_spec_tokens", (num_spec_tokens,), 0)
        acceptance_length = plain_number(acceptance_length)
        check_number("acceptance_length", acceptance_length, 1, num_spec_tokens + 1)
        mean = (acceptance_length - 1) / num_spec_tokens if num_spec_tokens else 0.0
        return cls(_decaying_rates(mean, num_spec_tokens))

    @property
    def conditional_rates(self) -> tuple[float, ...]:
        """The chance of each token given that all before it were accepted."""
        # One longer than the rates: none follows the last one.
        before = (1.0, *self.rates)
        return tuple(
            rate / last if last > 0 else 0.0 for rate, last in zip(self.rates, before, strict=False)
        )

    def log_thresholds(self, view: DraftView) -> Tensor:
        """The logarithms of the conditional rates."""
        num_drafts = view.num_draft_tokens
        rates = (*self.conditional_rates, *[0.0] * num_drafts)[:num_drafts]
        return torch.tensor(rates, dtype=torch.float64).log().to(view.draft_token_ids.device)


def _decaying_rates(mean: float, num_spec_tokens: int) -> Sequence[float]:
    def rates(height: float) -> Sequence[float]:
        # Up to 1 it is the first rate; beyond that the first stays 1, and the others fall less.
        first, excess = min(height, 1.0), max(height - 1.0, 0.0)
        decay = DEFAULT_DECAY + (1 - DEFAULT_DECAY) * excess
        return [*accumulate((first * decay**place for place in range(num_spec_tokens)), mul)]

    low, high = 0.0, 2.0
    # Bisection to the last bit of a double.
    while low < (middle := (low + high) / 2) < high:
        is_low = sum(rates(middle)) <= mean * num_spec_tokens
        low, high = (middle, high) if is_low else (low, middle)
    # A mean of 1 stays exact, too.
    return rates(high if mean == 1 else low)
