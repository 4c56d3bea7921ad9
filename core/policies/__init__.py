"""The acceptance policies, and the one table that lists them."""

from collections.abc import Mapping
from types import MappingProxyType

from .likely import RelaxedTopN, Typical
from .policy import Policy
from .probabilistic import Block, Probabilistic
from .strict import Fly, Strict
from .synthetic import Synthetic

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Probabilistic(),
            Block(),
            Strict(),
            Strict(coupled=True),
            Typical(),
            RelaxedTopN(),
            Fly(),
            Synthetic((0.9, 0.6, 0.4, 0.3)),
        )
    }
)
"""Policies by the names that users choose, with usual parameters; synthetic rates are only an
example. A policy's fields are its settings."""
