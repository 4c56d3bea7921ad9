"""Hypothesis strategies for cases; they draw a seed and a few choices and refuse to draw tensors.

Simpler choices come first, so that a failing case shrinks to few requests, few features and a small
vocabulary.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...core.policies import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    Strict,
    Synthetic,
    Typical,
)
from .case import DRAFTERS, FEATURES, LOGITS, TWISTS, Case

SMALL_VOCABULARIES = (2, 1, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64, 100, 127, 128, 129, 200, 255, 257)
BLOCK_EDGES = (500, 511, 512, 513, 515, 600, 1000, 1023, 1024, 1025, 1100, 1535, 1537, 2047, 2500)
LARGE_VOCABULARIES = (4096, 5001, 8200, 32000)
HUGE_VOCABULARIES = (50257, 128256, 151936)
MOST_BY_MANY = 10_000
"""Larger vocabularies come with few requests and short drafts."""

SHAPES = ((2, 5), (3, 4), (3, 3), (4, 4), (6, 5), (2, 12))
"""(most requests, longest draft) of a batch."""

FLOAT_DTYPES = ("float32", "bfloat16", "float16")

_shares = st.floats(0, 1, width=16)
_rates = st.lists(_shares, max_size=6).map(lambda values: tuple(sorted(values, reverse=True)))

POLICIES: Mapping[str, SearchStrategy[Policy]] = MappingProxyType(
    {
        "strict": st.just(Strict()),
        "strict-coupled": st.just(Strict(coupled=True)),
        "probabilistic": st.just(Probabilistic()),
        "block": st.just(Block()),
        "synthetic": st.builds(Synthetic, rates=_rates),
        "typical": st.builds(Typical, epsilon=_shares, delta=_shares),
        "relaxed": st.builds(RelaxedTopN, top_n=st.integers(1, 20), delta=_shares),
        "fly": st.builds(Fly, min_entropy=_shares, window=st.integers(0, 3)),
    }
)
"""Every policy with parameters over all of their ranges."""


def policies(names: Sequence[str] = tuple(POLICIES)) -> SearchStrategy[Policy]:
    """Some of the policies, by their names."""
    return st.one_of(*[POLICIES[name] for name in names])


def vocab_sizes(largest: int = 10**9) -> SearchStrategy[int]:
    """Sizes around every edge that blocks and vector loads have, seldom large ones."""
    # Repetition is weight. `one_of` would forget it.
    weighted = SMALL_VOCABULARIES * 4 + BLOCK_EDGES * 8 + LARGE_VOCABULARIES * 2 + HUGE_VOCABULARIES
    return st.sampled_from([size for size in weighted if size <= largest] or [1])


def cases(
    policy: SearchStrategy[Policy] | None = None, largest_vocabulary: int = 10**9
) -> SearchStrategy[Case]:
    """Batches of every shape, with a handful of features each."""
    few = st.frozensets(st.sampled_from(FEATURES), max_size=12)
    many = st.frozensets(st.sampled_from(FEATURES), min_size=3, max_size=14)
    case = st.builds(
        _case,
        seed=st.integers(0, 2**64 - 1),
        vocab_size=vocab_sizes(largest_vocabulary),
        num_draft_tokens=_draft_lengths(),
        policy=policies() if policy is None else policy,
        logits=st.sampled_from(LOGITS),
        drafter=st.sampled_from(DRAFTERS),
        dtype=st.sampled_from(FLOAT_DTYPES),
        draft_dtype=st.sampled_from(FLOAT_DTYPES),
        id_dtype=st.sampled_from(("int64", "int32")),
        features=st.one_of(few, many),
        twist=st.one_of(st.just(TWISTS[0]), st.sampled_from(TWISTS)),
    )
    return _without_mutants(case)


def _case(
    num_draft_tokens: list[int], vocab_size: int, policy: Policy, logits: str, **choices: Any
) -> Case:
    """A case, small where it is large elsewhere."""
    if vocab_size > MOST_BY_MANY:
        num_draft_tokens = [length % 3 for length in num_draft_tokens[:2]]
    if logits == "constant" and _compares_with_an_even_law(policy):
        logits = "normal"
    lengths = tuple(num_draft_tokens)
    return Case(
        num_draft_tokens=lengths, vocab_size=vocab_size, policy=policy, logits=logits, **choices
    )


def _compares_with_an_even_law(policy: Policy) -> bool:
    # The entropy of an even law is the logarithm of its size, and so is what these compare it with:
    # rounding alone decides, alike for all requests of a batch, and nobody is right.
    match policy:
        case Fly():
            return policy.min_entropy == 1
        case Typical():
            return policy.delta == 1
    return False


def _draft_lengths() -> SearchStrategy[list[int]]:
    return st.sampled_from(SHAPES).flatmap(
        lambda shape: st.lists(st.integers(0, shape[1]), max_size=shape[0])
    )


def _without_mutants(case: SearchStrategy[Case]) -> SearchStrategy[Case]:
    # Hypothesis follows each fresh example with five that copy one part of it over another and
    # keep its seed. It leaves the elements of collections without duplicates alone.
    return st.lists(case, min_size=1, max_size=1, unique=True).map(itemgetter(0))
