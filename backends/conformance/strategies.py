"""Hypothesis strategies for cases: a seed and a few choices, from which tensors follow.

Simpler choices come first, so that a failing case shrinks to few requests, few features and a small
vocabulary.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import Attribute, evolve, fields
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...core.policies import POLICIES as USUAL_POLICIES
from ...core.policies import Fly, Policy, Synthetic, Typical
from .case import DRAFTERS, FEATURES, LOGITS, VARIATIONS, Case

SMALL_VOCABULARIES = (2, 1, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64, 100, 127, 128, 129, 200, 255, 257)
BLOCK_EDGES = (500, 511, 512, 513, 515, 600, 1000, 1023, 1024, 1025, 1100, 1535, 1537, 2047, 2500)
LARGE_VOCABULARIES = (4096, 5001, 8200, 32000, 32001)
HUGE_VOCABULARIES = (50257, 128256, 151936, 200065)
MOST_BY_MANY = 10_000
"""Larger vocabularies come with few requests and short drafts."""
MOST_OF_A_CROWD = 1_100
"""The largest vocabulary of batches with many requests."""

SHAPES = ((2, 5), (3, 4), (3, 3), (4, 4), (6, 5), (2, 12), (1, 31))
"""(most requests, longest draft) of a batch."""
CROWDS = (64, 150, 300)
"""Numbers of requests of one batch in fifty."""

FLOAT_DTYPES = ("float32", "bfloat16", "float16")

SEEDS = st.tuples(*(st.integers(0, 63) for _ in range(8))).map(
    lambda digits: sum(digit << 6 * place for place, digit in enumerate(digits))
)
"""By digits: among larger numbers Hypothesis mixes some that it finds in loaded modules, so batches
would depend on the backend, on its code, and on what its process did before."""

_shares = st.integers(0, 64).map(lambda parts: parts / 64)
_rates = st.lists(_shares, max_size=6).map(lambda values: tuple(sorted(values, reverse=True)))


def _parameter(field: "Attribute[Any]") -> SearchStrategy[float]:
    low, high = field.metadata["low"], field.metadata["high"]
    if field.type is int:
        return st.sampled_from([low + more for more in (0, 1, 2, 3, 5, 9, 19)])
    return _shares.map(lambda share: low + share * (high - low))


def _variants(policy: Policy) -> SearchStrategy[Policy]:
    if isinstance(policy, Synthetic):
        return st.builds(Synthetic, rates=_rates)
    usual: Any = policy
    known = {field.name: _parameter(field) for field in fields(type(usual)) if field.metadata}
    return st.fixed_dictionaries(known).map(lambda values: evolve(usual, **values))


POLICIES: Mapping[str, SearchStrategy[Policy]] = MappingProxyType(
    {name: _variants(policy) for name, policy in USUAL_POLICIES.items()}
)
"""Every policy with parameters over all of their ranges."""

_crowds = st.sampled_from(CROWDS).map(lambda count: [place % 3 for place in range(count)])


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
    form = st.builds(
        Case,
        vocab_size=vocab_sizes(largest_vocabulary),
        policy=policies() if policy is None else policy,
        drafter=st.sampled_from(DRAFTERS),
        dtype=st.sampled_from(FLOAT_DTYPES),
        draft_dtype=st.sampled_from(FLOAT_DTYPES),
        id_dtype=st.sampled_from(("int64", "int32")),
        features=st.one_of(few, many),
    )
    shape = st.sampled_from(SHAPES * 7 + (None,))
    lengths = shape.flatmap(lambda shape: _crowds if shape is None else _lengths(*shape))
    return _drawn(form, lengths)


def form(number: int, names: Sequence[str], largest_vocabulary: int = 10**9) -> Case:
    """What kernels are compiled for, so that many batches need few of them.

    Always the same one for a number; `cases_of` makes batches of it.
    """
    rng = np.random.default_rng(number)
    known = SMALL_VOCABULARIES + BLOCK_EDGES * 2 + LARGE_VOCABULARIES * 2 + HUGE_VOCABULARIES
    sizes = [size for size in known if size <= largest_vocabulary] or [1]
    turn = number // len(names)
    return Case(
        policy=USUAL_POLICIES[names[number % len(names)]],
        vocab_size=sizes[rng.integers(len(sizes))],
        num_draft_tokens=(int(rng.choice((1, 2, 3, 3, 5, 8, 31))),),
        drafter=DRAFTERS[(number + turn) % len(DRAFTERS)],
        dtype=FLOAT_DTYPES[(number + turn) % 3],
        draft_dtype=FLOAT_DTYPES[(number + number // 3) % 3],
        id_dtype=("int64", "int32")[turn % 2],
        features=frozenset(feature for feature in FEATURES if rng.random() < 0.35),
    )


def cases_of(form: Case) -> SearchStrategy[Case]:
    """Batches of a form: seeds, lengths up to its own, logits, variations."""
    longest = max(form.num_draft_tokens)
    few = st.lists(st.integers(0, longest), min_size=2, max_size=4 if longest < 9 else 2)
    lengths = st.sampled_from((few,) * 15 + (_crowds,)).flatmap(lambda some: some)
    return _drawn(st.just(form), lengths.map(lambda others: [longest, *others]))


def _drawn(form: SearchStrategy[Case], lengths: SearchStrategy[list[int]]) -> SearchStrategy[Case]:
    """Cases of a form, small where they are large elsewhere."""
    drawn = st.builds(
        _case,
        form,
        lengths,
        seed=SEEDS,
        logits=st.sampled_from(LOGITS),
        variation=st.one_of(st.just(VARIATIONS[0]), st.sampled_from(VARIATIONS)),
    )
    # Hypothesis follows each fresh example with five that copy one part of it over another and
    # keep its seed. It leaves the elements of collections without duplicates alone.
    return st.lists(drawn, min_size=1, max_size=1, unique=True).map(itemgetter(0))


def _case(form: Case, lengths: list[int], seed: int, logits: str, variation: str) -> Case:
    if form.vocab_size > MOST_BY_MANY:
        lengths = [min(length, 2) for length in lengths[:2]]
    elif form.vocab_size > MOST_OF_A_CROWD:
        lengths = lengths[:6]
    if logits in ("constant", "even", "mixed") and _compares_with_an_even_law(form.policy):
        logits = "lm"
    return evolve(
        form, num_draft_tokens=tuple(lengths), seed=seed, logits=logits, variation=variation
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


def _lengths(most: int, longest: int) -> SearchStrategy[list[int]]:
    return st.lists(st.integers(0, longest), max_size=most)
