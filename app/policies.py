"""Turns settings into policies: a policy's own fields, or one of three ways to set rates."""

from typing import Any

from attrs import asdict, frozen

from ..adapters.error_text import unfit
from ..core import POLICIES, InvalidInputError, Policy, Synthetic
from ..core.policies.parameters import number


@frozen(kw_only=True)
class SyntheticSettings:
    """Synthetic rates, set in one of three ways.

    Attributes:
        rates: for each place in the draft, the share of drafts accepted through it.
        acceptance_length: tokens per draft, with the one that follows the accepted ones.
        acceptance_rate: accepted over drafted tokens.

    Raises:
        InvalidInputError: none is given, or more than one, or it is out of its range.
    """

    rates: tuple[float, ...] | None = None
    acceptance_length: float | None = number(None, 1)
    acceptance_rate: float | None = number(None, 0, 1)

    def __attrs_post_init__(self) -> None:
        ways = (self.rates, self.acceptance_length, self.acceptance_rate)
        num_given = sum(way is not None for way in ways)
        if num_given != 1:
            expected = "one of rates, acceptance_length and acceptance_rate beside synthetic"
            raise unfit("name", expected, f"{num_given or 'none'} of them", InvalidInputError)
        if self.rates is not None:
            Synthetic(self.rates)

    def policy(self, num_spec_tokens: int) -> Synthetic:
        """The policy for drafts of this many tokens."""
        if self.acceptance_length is not None:
            return Synthetic.from_acceptance_length(self.acceptance_length, num_spec_tokens)
        if self.acceptance_rate is not None:
            return Synthetic.from_acceptance_rate(self.acceptance_rate, num_spec_tokens)
        assert self.rates is not None
        return Synthetic(self.rates)


PolicySettings = Policy | SyntheticSettings


def settings_class(name: str) -> type[Any]:
    """The attrs class whose fields are a policy's settings."""
    return SyntheticSettings if name == Synthetic.name else type(POLICIES[name])


def fixed_settings(name: str) -> dict[str, Any]:
    """Settings that the policy's name decides, such as that strict-coupled is coupled."""
    if name == Synthetic.name:
        return {}
    policy: Any = POLICIES[name]
    return asdict(policy, filter=lambda field, value: value != field.default)


def make_policy(settings: PolicySettings, num_spec_tokens: int) -> Policy:
    """The policy that settings describe, for drafts of this many tokens."""
    return settings.policy(num_spec_tokens) if isinstance(settings, SyntheticSettings) else settings
