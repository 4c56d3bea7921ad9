"""The acceptance policies."""

from .block import Block
from .fly import Fly
from .policy import DraftView, Policy, Rule, reports_total_variation
from .probabilistic import Probabilistic
from .relaxed import RelaxedTopN
from .strict import Strict
from .synthetic import Synthetic
from .typical import Typical

__all__ = [
    "Block",
    "DraftView",
    "Fly",
    "Policy",
    "Probabilistic",
    "RelaxedTopN",
    "Rule",
    "Strict",
    "Synthetic",
    "Typical",
    "reports_total_variation",
]
