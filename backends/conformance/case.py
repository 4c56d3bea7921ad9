"""The recipe of one test batch: small, printable and reproducible.

All tensors follow from it by a seed, so a failing case is reported and shrunk as plain values.
"""

import json
from typing import Any, cast

import attrs
from attrs import field, frozen

from ...core import policies
from ...core.policies import Policy, Strict

LOGITS = ("lm", "zipf", "flat", "sharp", "ties", "constant", "even", "large", "huge", "mixed")
"""What target logits look like; in mixed batches each row is of another kind."""

DRAFTERS = ("same", "one-hot", "narrower", "mapped", "permuted")
"""The draft's vocabulary, or that drafts have no probabilities."""

FEATURES = (
    "allowed tokens",
    "arbitrary drafts",
    "bad draft rows",
    "bad ids",
    "bad target rows",
    "bias",
    "close drafter",
    "draft recipe",
    "equal drafter",
    "extremes",
    "greedy",
    "logprobs",
    "long positions",
    "masked",
    "min-p",
    "penalties",
    "room",
    "slots",
    "strides",
    "temperature",
    "top-k",
    "top-p",
)
"""What a batch may have beside the plain minimum; extremes are those of temperature, bias and
penalties."""

VARIATIONS = ("none", "repeated", "in part", "among strangers")
"""Whether requests are verified again in another batch, in which each must keep its tokens."""


@frozen(kw_only=True)
class Case:
    """One batch to be drafted, verified and compared.

    Attributes:
        seed: where every number comes from.
        vocab_size: the target's V.
        num_draft_tokens: K of each request.
        policy: the law.
        logits: one of `LOGITS`.
        drafter: one of `DRAFTERS`.
        dtype, draft_dtype: of the two models' logits.
        id_dtype: of token ids, positions, slots and row starts.
        features: any of `FEATURES`.
        variation: one of `VARIATIONS`.
    """

    seed: int = 0
    vocab_size: int = 2
    num_draft_tokens: tuple[int, ...] = (1,)
    policy: Policy = field(default=Strict())
    logits: str = "lm"
    drafter: str = "same"
    dtype: str = "float32"
    draft_dtype: str = "float32"
    id_dtype: str = "int64"
    features: frozenset[str] = frozenset()
    variation: str = "none"

    def has(self, feature: str) -> bool:
        """Whether the batch has it."""
        return feature in self.features

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        values = attrs.asdict(self, recurse=False)
        parameters = attrs.asdict(cast("attrs.AttrsInstance", self.policy))
        values["policy"] = [type(self.policy).__name__, parameters]
        values["features"] = sorted(self.features)
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> "Case":
        """The case that a report names."""
        values: dict[str, Any] = json.loads(text)
        name, parameters = values.pop("policy")
        values["num_draft_tokens"] = tuple(values["num_draft_tokens"])
        values["features"] = frozenset(values["features"])
        return cls(policy=getattr(policies, name)(**parameters), **values)
