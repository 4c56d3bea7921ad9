"""Hypothesis strategies for cases; they draw a seed and a few choices and refuse to draw tensors.

Simpler choices come first, so that a failing case shrinks to few requests, few features and a small
vocabulary.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

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

    def up_to(sizes: tuple[int, ...]) -> SearchStrategy[int]:
        return st.sampled_from([size for size in sizes if size <= largest] or [1])

    small, edges, large = map(up_to, (SMALL_VOCABULARIES, BLOCK_EDGES, LARGE_VOCABULARIES))
    common = (small, small, edges, edges, edges)
    return st.one_of(*common * 40, *[large] * 10, up_to(HUGE_VOCABULARIES))


def cases(
    policy: SearchStrategy[Policy] | None = None, largest_vocabulary: int = 10**9
) -> SearchStrategy[Case]:
    """Batches of every shape, with a handful of features each."""
    return vocab_sizes(largest_vocabulary).flatmap(
        lambda vocab_size: _cases_of(vocab_size, policies() if policy is None else policy)
    )


def _cases_of(vocab_size: int, policy: SearchStrategy[Policy]) -> SearchStrategy[Case]:
    few = st.frozensets(st.sampled_from(FEATURES), max_size=12)
    many = st.frozensets(st.sampled_from(FEATURES), min_size=3, max_size=14)
    return st.builds(
        Case,
        seed=st.integers(0, 2**64 - 1),
        vocab_size=st.just(vocab_size),
        num_draft_tokens=_draft_lengths(vocab_size),
        policy=policy,
        logits=st.sampled_from(LOGITS),
        drafter=st.sampled_from(DRAFTERS),
        dtype=st.sampled_from(FLOAT_DTYPES),
        draft_dtype=st.sampled_from(FLOAT_DTYPES),
        id_dtype=st.sampled_from(("int64", "int32")),
        features=st.one_of(few, few, many),
        twist=st.sampled_from(TWISTS),
    )


def _draft_lengths(vocab_size: int) -> SearchStrategy[tuple[int, ...]]:
    usual, long = st.integers(0, 5), st.integers(0, 12)
    lengths = st.lists(st.one_of(usual, usual, long), max_size=6)
    if vocab_size > 10_000:
        lengths = st.lists(st.integers(0, 2), max_size=2)
    return lengths.map(tuple)
