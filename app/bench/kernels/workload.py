"""What is measured: sizes, recipe and policy of one batch. It refuses to hold tensors."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType

import torch
from attrs import frozen

from ....core.errors import InvalidInputError
from ....core.policies import Policy
from ....core.sampling_params import Recipe
from ...policies import POLICIES, SyntheticSettings, make_policy

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
)
SYNTHETIC_ACCEPTANCE_RATE = 0.7


@frozen(kw_only=True)
class Workload:
    """One batch to be timed.

    Attributes:
        num_reqs: R.
        num_spec_tokens: K draft tokens of every request.
        vocab_size: V.
        dtype: of both models' logits, one of `DTYPES`.
        policy: one of the application's policy names.
        recipe: of both models.

    Raises:
        InvalidInputError: the policy or the dtype is unknown.
    """

    num_reqs: int = 1
    num_spec_tokens: int = 3
    vocab_size: int = 151_936
    dtype: str = "bfloat16"
    policy: str = "probabilistic"
    recipe: Recipe = Recipe(temperature=0.8)

    def __attrs_post_init__(self) -> None:
        for name, known in (("policy", POLICIES), ("dtype", DTYPES)):
            value = getattr(self, name)
            if value not in known:
                raise InvalidInputError(f"{name}: expected one of {', '.join(known)}, got {value}")

    @property
    def label(self) -> str:
        """The policy and the recipe, as tables show them."""
        if self.recipe.is_greedy:
            return "greedy" if self.policy == "probabilistic" else f"{self.policy}, greedy"
        words = [self.policy, f"temperature {self.recipe.temperature:g}"]
        words += [f"min-p {self.recipe.min_p:g}"] * (self.recipe.min_p > 0)
        words += [f"top-k {self.recipe.top_k}"] * (self.recipe.top_k > 0)
        words += [f"top-p {self.recipe.top_p:g}"] * (self.recipe.top_p < 1)
        return ", ".join(words)

    def make_policy(self) -> Policy:
        """The policy with its default settings."""
        kind = POLICIES[self.policy]
        settings = {}
        if kind is SyntheticSettings:
            settings["acceptance_rate"] = SYNTHETIC_ACCEPTANCE_RATE
        return make_policy(kind(**settings), self.num_spec_tokens)

    @property
    def reads_draft_logits(self) -> bool:
        """Whether the rule needs the draft's logits."""
        return self.make_policy().uses_draft_probs and not self.recipe.is_greedy

    @property
    def num_logits_read(self) -> int:
        """Logits that the rule needs, if it reads every row once."""
        num_rows = self.num_spec_tokens + 1 + self.num_spec_tokens * self.reads_draft_logits
        return self.num_reqs * num_rows * self.vocab_size

    @property
    def num_bytes(self) -> int:
        """What those logits take."""
        return self.num_logits_read * DTYPES[self.dtype].itemsize


HEADLINE: Sequence[tuple[str, Recipe]] = (
    ("probabilistic", Recipe(temperature=0.8)),
    ("probabilistic", Recipe(temperature=0.8, top_k=50, top_p=0.9)),
    ("probabilistic", Recipe(temperature=0.8, top_p=0.9)),
    ("probabilistic", Recipe(temperature=0)),
    ("strict", Recipe(temperature=0.8)),
    ("block", Recipe(temperature=0.8)),
)
"""The rows of the tables that backends are compared by."""

HEADLINE_NUM_REQS = (1, 16, 64, 256)


def headline() -> Iterator[Workload]:
    """The rows at one batch size after the other."""
    for num_reqs, (policy, recipe) in product(HEADLINE_NUM_REQS, HEADLINE):
        yield Workload(num_reqs=num_reqs, policy=policy, recipe=recipe)
