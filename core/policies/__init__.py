"""The acceptance policies, by the names users choose them by."""

from .policy import DraftView, Policy, Rule
from .probabilistic import Probabilistic
from .strict import Strict
from .synthetic import Synthetic

__all__ = ["DraftView", "Policy", "Probabilistic", "Rule", "Strict", "Synthetic"]
