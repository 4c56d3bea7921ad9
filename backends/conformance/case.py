"""Cases: small, printable, reproducible recipes of test batches, and a generator of random ones.

All tensors of a batch follow from its case and the seed in it, so a failing case is reported and
shrunk as plain values.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from attrs import asdict, evolve, field, fields, frozen

from ...core import POLICIES, InvalidInputError, Policy, Strict, policies
from ...core.call_memory import check_policy
from ...core.checks import MAX_INT64, check_choice, check_integers
from ...core.policies.parameters import choice, integer
from .oracle.policies import rule_of

LOGITS = ("lm", "zipf", "flat", "sharp", "ties", "constant", "even", "large", "huge", "mixed")
"""Kinds of target logits; in a mixed batch each row has its own kind."""

FLOAT_DTYPES = ("float32", "bfloat16", "float16")
ID_DTYPES = ("int64", "int32")

DRAFTERS = ("same", "one-hot", "narrower", "mapped", "permuted")
"""The kinds of drafters: which vocabulary they use, or that drafts have no probabilities."""

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
"""What a batch may have beyond the plain minimum; "extremes" concerns temperature, bias and
penalties."""

VARIATIONS = ("none", "repeated", "in part", "among strangers")
"""The second batch that requests are verified in, where each must get the same tokens."""


@frozen(kw_only=True)
class Case:
    """One batch to be drafted, verified and compared.

    Attributes:
        seed: determines every number.
        vocab_size: the target's V.
        num_draft_tokens: K of each request.
        policy: the law.
        logits: one of `LOGITS`.
        drafter: one of `DRAFTERS`.
        dtype, draft_dtype: of the two models' logits.
        id_dtype: of token ids, positions, slots and row starts.
        features: any of `FEATURES`.
        variation: one of `VARIATIONS`.
        shape: a seed for all that kernels are compiled for: draft lengths, which request asks
            for what, gaps, who is verified again; None if `seed` decides that, too.

    Raises:
        InvalidInputError: a value is unknown or out of its range.
    """

    seed: int = integer(0, 0, MAX_INT64)
    vocab_size: int = integer(2, 1, 2**24)
    num_draft_tokens: tuple[int, ...] = field(default=(1,), converter=tuple[int, ...])
    policy: Policy = Strict()
    logits: str = choice("lm", LOGITS)
    drafter: str = choice("same", DRAFTERS)
    dtype: str = choice("float32", FLOAT_DTYPES)
    draft_dtype: str = choice("float32", FLOAT_DTYPES)
    id_dtype: str = choice("int64", ID_DTYPES)
    features: frozenset[str] = frozenset()
    variation: str = choice("none", VARIATIONS)
    shape: int | None = integer(None, 0)

    def __attrs_post_init__(self) -> None:
        check_integers("num_draft_tokens", self.num_draft_tokens, 0, 1024)
        check_policy(self.policy)
        for feature in self.features:
            check_choice("features", feature, FEATURES)

    def has(self, feature: str) -> bool:
        """Whether the batch has this feature."""
        return feature in self.features

    def shaping(self, rng: "Numbers", purpose: int) -> "Numbers":
        """The generator that draws the shape: its own, or the batch's if there is no seed."""
        return rng if self.shape is None else np.random.default_rng((self.shape, purpose))

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        policy: Any = self.policy
        values = {
            "policy": [type(policy).__name__, asdict(policy)],
            "features": sorted(self.features),
        }
        return json.dumps(asdict(self, recurse=False) | values)

    @classmethod
    def from_json(cls, text: str) -> "Case":
        """The case that a report names; `InvalidInputError` if it names none."""
        try:
            values: dict[str, Any] = json.loads(text)
            name, parameters = values.pop("policy")
            values["features"] = frozenset(values["features"])
            return cls(policy=getattr(policies, name)(**parameters), **values)
        except InvalidInputError as error:
            raise InvalidInputError(f"--case: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidInputError(f"--case: expected a report's case, got {error!r}") from None


VOCABULARIES = (
    (2, 1, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64, 100, 127, 128, 129, 200, 255, 257),
    (500, 511, 512, 513, 515, 600, 1000, 1023, 1024, 1025, 1100, 1535, 1537, 2047, 2500),
    (4096, 5001, 8200, 32000, 32001),
    (50257, 128256, 151936, 200065),
)
"""Small ones, those around the edges of blocks and vector loads, large ones, and real models'."""

SHARES = (0.36, 0.57, 0.05, 0.02)
SHARES_OF_FORMS = (0.3, 0.48, 0.16, 0.06)
"""How often each is drawn, such that even a few forms include some of each kind."""

MOST_BY_MANY = 10_000
"""Vocabularies above this get few requests and short drafts."""
MOST_OF_A_CROWD = 1_100
"""The largest vocabulary of batches with many requests."""

LONGEST_DRAFTS = (0, 1, 2, 3, 4, 5) * 4 + (8, 12, 31)
CROWDS = (64, 150, 300)
"""The numbers of requests that one batch in fifty has."""

NUM_SHAPES = 12
"""How many shapes the batches of one form have, in turn: each has kernels of its own."""

INTEGERS = (0, 1, 2, 3, 5, 9, 19)
"""By how much integer parameters of policies exceed their minimum."""

Numbers = np.random.Generator
Value = TypeVar("Value")


@frozen
class Generator:
    """Which cases there are.

    Attributes:
        policies: names of `acceptor.core.policies.POLICIES`.
        largest_vocabulary: a limit for backends that run in a slow simulator.
        num_forms: how many kinds of batches there are, which bounds what is compiled; 0 for no
            limit. If there is a limit, the chunk's number selects its form.

    Raises:
        InvalidInputError: a policy is unknown, or a number out of its range.
    """

    policies: tuple[str, ...] = tuple(POLICIES)
    largest_vocabulary: int = integer(10**9, 1)
    num_forms: int = integer(0, 0)

    def __attrs_post_init__(self) -> None:
        for name in self.policies:
            check_choice("policies", name, POLICIES)

    def cases(self, chunk: int, num_batches: int) -> Iterator[Case]:
        """The batches of a chunk, always the same ones."""
        rng = np.random.default_rng((chunk, 1))
        for place in range(num_batches):
            if self.num_forms:
                yield _batch_of(self.shaped(chunk, place % NUM_SHAPES), rng)
            else:
                yield _batch_of(_shaped(self.form(int(rng.integers(2**32))), rng), rng)

    def shaped(self, chunk: int, shape: int) -> Case:
        """What all batches of one shape have in common, in all chunks of one form."""
        number = chunk % self.num_forms
        form = evolve(self.form(number), shape=number * NUM_SHAPES + shape)
        return _shaped(form, form.shaping(np.random.default_rng(), 0))

    def form(self, number: int) -> Case:
        """A kind of batch that kernels are compiled for; it holds just the longest draft."""
        rng, name = np.random.default_rng(number), self.policies[number % len(self.policies)]
        share = rng.choice((0.15, 0.4))
        return Case(
            policy=_variant(POLICIES[name], rng),
            vocab_size=self._vocab_size(rng),
            num_draft_tokens=(one_of(rng, LONGEST_DRAFTS),),
            drafter=one_of(rng, DRAFTERS),
            dtype=one_of(rng, FLOAT_DTYPES),
            draft_dtype=one_of(rng, FLOAT_DTYPES),
            id_dtype=one_of(rng, ID_DTYPES),
            features=frozenset(name for name in FEATURES if rng.random() < share),
        )

    def _vocab_size(self, rng: Numbers) -> int:
        shares = SHARES_OF_FORMS if self.num_forms else SHARES
        sizes = VOCABULARIES[rng.choice(len(VOCABULARIES), p=shares)]
        small = [size for size in sizes if size <= self.largest_vocabulary]
        return int(one_of(rng, small or VOCABULARIES[0][:2]))


def one_of(rng: Numbers, values: Sequence[Value]) -> Value:
    """One of the values at random."""
    return values[int(rng.integers(len(values)))]


def _variant(policy: Any, rng: Numbers) -> Policy:
    """The policy with parameters drawn from their whole ranges."""
    values = {f.name: _parameter(f, rng) for f in fields(type(policy)) if f.type is not bool}
    changed: Policy = evolve(policy, **values)
    return changed


def _parameter(field: Any, rng: Numbers) -> Any:
    shares = rng.integers(65, size=6) / 64
    if not field.metadata:
        # Rates, which never rise.
        return tuple(sorted(shares[: rng.integers(7)].tolist(), reverse=True))
    low, high = field.metadata["low"], field.metadata["high"]
    return low + (one_of(rng, INTEGERS) if field.type is int else float(shares[0]) * (high - low))


def _shaped(form: Case, rng: Numbers) -> Case:
    """Add draft lengths, up to the form's own, and a variation."""
    (longest,) = form.num_draft_tokens
    lengths = rng.integers(longest + 1, size=rng.integers(6 if longest < 6 else 2)).tolist()
    if form.vocab_size > MOST_BY_MANY:
        longest, lengths = min(longest, 2), [min(length, 2) for length in lengths[:1]]
    variation = one_of(rng, ("none",) * 3 + VARIATIONS[1:])
    return evolve(form, num_draft_tokens=(longest, *lengths), variation=variation)


def _batch_of(shaped: Case, rng: Numbers) -> Case:
    """Add a seed and logits; a few batches become empty or a crowd."""
    lengths = shaped.num_draft_tokens
    if rng.random() < 0.03:
        lengths = ()
    elif rng.random() < 0.02 and shaped.vocab_size <= MOST_OF_A_CROWD:
        others = range(1, one_of(rng, CROWDS))
        lengths = (lengths[0], *(min(place % 3, lengths[0]) for place in others))
    logits, features = one_of(rng, LOGITS), shaped.features
    if rule_of(shaped.policy).turns_on_even_laws(shaped.policy):
        # Extreme temperatures make any law even.
        logits = "lm" if logits in ("constant", "even", "mixed") else logits
        features -= {"extremes"}
    return evolve(
        shaped,
        num_draft_tokens=lengths,
        seed=int(rng.integers(2**48)),
        logits=logits,
        features=features,
    )
