"""The cases of the proof: every policy with every kind of drafter, on small models.

A new policy is one more entry of `POLICIES`.
"""

from attrs import evolve, frozen

from acceptor.core import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    Recipe,
    RelaxedTopN,
    SamplingParams,
    Strict,
    Synthetic,
    Typical,
)
from kit.decode_law import DecodeSetup, Tokens, random_model

POLICIES: tuple[Policy, ...] = (
    Strict(),
    Strict(coupled=True),
    Probabilistic(),
    Block(),
    Typical(epsilon=0.25, delta=0.8),
    RelaxedTopN(top_n=2, delta=0.3),
    Fly(min_entropy=0.3, window=1),
    Synthetic((0.7, 0.4)),
)

TARGET, DRAFT = random_model(3, seed=5), random_model(3, seed=105)


def _next_in_line(text: Tokens) -> list[float]:
    next_token = (sum(text) + len(text)) % 3
    return [float(token == next_token) for token in range(3)]


def _all_but_one(text: Tokens) -> Tokens:
    return tuple(token for token in range(3) if token != (2 * sum(text) + len(text)) % 3)


_DENSE = DecodeSetup(target=TARGET, draft=DRAFT, policy=Strict(), num_spec_tokens=2)
_RECIPES = SamplingParams(
    seed=5, temperature=1.2, top_p=0.85, draft=Recipe(temperature=0.5, min_p=0.05)
)
_ARGMAX = SamplingParams(seed=5, temperature=1.2, draft=Recipe(temperature=0.0))
_PENALTIES = SamplingParams(seed=5, repetition_penalty=1.6, presence_penalty=0.4)

DRAFTERS: dict[str, DecodeSetup] = {
    "draft model": _DENSE,
    "two ids": evolve(_DENSE, target=random_model(2, seed=3), draft=random_model(2, seed=4)),
    "n-gram": evolve(_DENSE, draft=None, guess=_next_in_line),
    "argmax": evolve(_DENSE, draft=random_model(3, seed=9), params=_ARGMAX),
    "other recipe": evolve(_DENSE, params=_RECIPES),
    "penalties": evolve(_DENSE, params=_PENALTIES),
    "masks": evolve(_DENSE, allows=_all_but_one),
    "narrower": evolve(_DENSE, draft=random_model(2, seed=8)),
    "mapped": evolve(_DENSE, draft=random_model(2, seed=8), draft_to_target=(2, 0)),
}
"""How drafts are made; `setup` adds the policy."""

NUM_TOKENS = 3
"""With two drafts a step: after a rejection, positions 1 and 2 are drafted a second time."""

FEW_TOKENS = 2
"""Where states are many: contexts that count tokens, and noise of target samples that is used again
behind a rejection. Position 1 is still drafted a second time."""


@frozen
class Pair:
    """One policy with one kind of drafter."""

    policy: Policy
    drafter: str

    @property
    def name(self) -> str:
        """The name in the tables."""
        return f"{self.policy.name}, {self.drafter}"

    @property
    def num_tokens(self) -> int:
        """How many tokens are enumerated."""
        few = self.drafter == "penalties" or self.policy.uses_target_samples
        return FEW_TOKENS if few and self.drafter != "two ids" else NUM_TOKENS

    @property
    def setup(self) -> DecodeSetup:
        """The setup to enumerate."""
        return evolve(DRAFTERS[self.drafter], policy=self.policy)


PAIRS = tuple(Pair(policy, drafter) for policy in POLICIES for drafter in DRAFTERS)
LOSSLESS = tuple(pair for pair in PAIRS if pair.policy.lossless)
ONE_HOT = ("n-gram", "argmax")
"""Drafters that are certain of their drafts."""
LOSSY = tuple(pair for pair in PAIRS if not pair.policy.lossless)
HONEST = tuple(p for p in LOSSY if not isinstance(p.policy, Fly) or p.drafter in ONE_HOT)
"""FLy judges a draft by what follows it, so its report is exact only for one-hot drafts."""

BY_NAME = {pair.name: pair for pair in PAIRS}
