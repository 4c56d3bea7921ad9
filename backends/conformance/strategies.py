"""Hypothesis strategies for cases; they draw a seed and a few choices and refuse to draw tensors.

Simpler choices come first, so that a failing case shrinks to few requests, few features and a small
vocabulary.
"""

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

FLOAT_DTYPES = ("float32", "bfloat16", "float16")


def policies() -> SearchStrategy[Policy]:
    """Every policy with parameters over all of their ranges."""
    shares = st.floats(0, 1, width=16)
    rates = st.lists(shares, max_size=6).map(lambda values: tuple(sorted(values, reverse=True)))
    return st.one_of(
        st.builds(Strict, coupled=st.booleans()),
        st.just(Probabilistic()),
        st.just(Block()),
        st.builds(Synthetic, rates=rates),
        st.builds(Typical, epsilon=shares, delta=shares),
        st.builds(RelaxedTopN, top_n=st.integers(1, 20), delta=shares),
        st.builds(Fly, min_entropy=shares, window=st.integers(0, 3)),
    )


def vocab_sizes(largest: int = 10**9) -> SearchStrategy[int]:
    """Sizes around every edge that blocks and vector loads have."""

    def up_to(sizes: tuple[int, ...]) -> SearchStrategy[int]:
        return st.sampled_from([size for size in sizes if size <= largest] or [1])

    small, edges = up_to(SMALL_VOCABULARIES), up_to(BLOCK_EDGES)
    common = [small, small, edges, edges, edges] * 4
    return st.one_of(*common, up_to(LARGE_VOCABULARIES))


def cases(
    policy: SearchStrategy[Policy] | None = None,
    largest_vocabulary: int = 10**9,
    most_requests: int = 6,
) -> SearchStrategy[Case]:
    """Batches of every shape, with a handful of features each."""
    lengths = st.one_of(st.integers(0, 5), st.integers(0, 5), st.integers(0, 12))
    features = st.frozensets(st.sampled_from(FEATURES), max_size=12)
    rich = st.frozensets(st.sampled_from(FEATURES), min_size=3, max_size=14)
    return st.builds(
        Case,
        seed=st.integers(0, 2**64 - 1),
        vocab_size=vocab_sizes(largest_vocabulary),
        num_draft_tokens=st.lists(lengths, max_size=most_requests).map(tuple),
        policy=policies() if policy is None else policy,
        logits=st.sampled_from(LOGITS),
        drafter=st.sampled_from(DRAFTERS),
        dtype=st.sampled_from(FLOAT_DTYPES),
        draft_dtype=st.sampled_from(FLOAT_DTYPES),
        id_dtype=st.sampled_from(("int64", "int32")),
        features=st.one_of(features, features, rich),
        twist=st.sampled_from(TWISTS),
    )
