"""Tokens per second that a policy, a K and a concurrency will give, from one measured run.

Goodput counts emitted tokens only, so it falls when drafts cost more than they save. The model
assumes that as many requests run as are allowed.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from attrs import frozen

from .costs import CostRow, StepCosts, StepTimes
from .profile import AcceptanceProfile, steps_for


@frozen(kw_only=True)
class Goodput:
    """The model of one policy under one kind of load, from its measured run.

    Attributes:
        profile: how far its drafts are accepted.
        costs: the costs of its steps, see `StepCosts.rows`.
        prefill_seconds: the time of one prompt, during which nothing is decoded.
        output_len: tokens per request.
    """

    profile: AcceptanceProfile
    costs: tuple[CostRow, ...]
    prefill_seconds: float
    output_len: int

    @cached_property
    def step_costs(self) -> StepCosts:
        """Costs for any batch and any K."""
        return StepCosts({(int(r), int(k)): StepTimes(*times) for r, k, *times in self.costs})

    def tokens_per_second(self, num_spec_tokens: int, concurrency: int) -> float:
        """Output tokens of all requests together."""
        steps = steps_for(self.profile, num_spec_tokens, self.output_len)
        decoding = steps * self.step_costs.seconds(concurrency, num_spec_tokens)
        seconds = decoding + concurrency * self.prefill_seconds
        return concurrency * self.output_len / seconds


@frozen(kw_only=True, order=True)
class Prediction:
    """The prediction for one choice; a better one compares larger."""

    tokens_per_second: float
    policy: str
    num_spec_tokens: int
    concurrency: int


def predict(
    models: Mapping[str, Goodput], lengths: Iterable[int], concurrencies: Sequence[int]
) -> list[Prediction]:
    """Predictions for every policy, K and concurrency."""
    return [
        Prediction(
            tokens_per_second=model.tokens_per_second(length, concurrency),
            policy=policy,
            num_spec_tokens=length,
            concurrency=concurrency,
        )
        for length in lengths
        for policy, model in models.items()
        for concurrency in concurrencies
    ]


def recommend(predictions: Iterable[Prediction], concurrency: int) -> Prediction:
    """The fastest choice at a concurrency; among equals the one with the shorter drafts."""
    return max(
        (one for one in predictions if one.concurrency == concurrency),
        key=lambda one: (one.tokens_per_second, -one.num_spec_tokens),
    )
