"""A bounded number of kinds of batches, so that fused backends compile a bounded number of kernels.

Everything that a kernel may be compiled for is fixed in a form; seeds, lengths, logits and recipes
are Hypothesis's. It refuses to leave a policy out.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from acceptor.backends.conformance.case import DRAFTERS, FEATURES, LOGITS, Case
from acceptor.backends.conformance.strategies import FLOAT_DTYPES
from acceptor.core import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    RelaxedTopN,
    Strict,
    Synthetic,
    Typical,
)
from kit.equivalence.asking import asking_for_all

POLICIES: Sequence[Policy] = (
    Strict(),
    Strict(coupled=True),
    Probabilistic(),
    Block(),
    Synthetic((0.9, 0.6, 0.4, 0.3)),
    Typical(),
    RelaxedTopN(),
    Fly(),
)


@frozen
class Size:
    """Vocabularies of one size, and what batches of them may have.

    Attributes:
        vocabularies: those that stand together are compiled alike.
        longest: draft, of any form.
        features: of some forms; others have all that are not among them.
    """

    vocabularies: tuple[tuple[int, ...], ...]
    longest: int
    features: frozenset[str]


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split(", "))


SIZES = (
    Size(
        ((2, 7, 100, 511), (512,)),
        5,
        _set(
            "bias, penalties, logprobs, arbitrary drafts, bad target rows, equal drafter, greedy, "
            "room, slots"
        ),
    ),
    Size(
        ((513, 1025), (2048,), (2500,), (5001,)),
        3,
        _set(
            "bad draft rows, bad ids, close drafter, greedy, long positions, masked, slots, strides"
        ),
    ),
    Size(
        ((32000,), (50257,), (151936,), (200065,)),
        2,
        _set(
            "top-p, min-p, bad ids, bad target rows, close drafter, extreme temperature, greedy, "
            "slots"
        ),
    ),
)
"""A policy takes them in turn, and at each either these features or all others: so each has forms
with bias, penalties and logprobs and forms without, whose rows kernels take as they are."""

TWISTS = ("none", "none", "repeat", "permute", "slots")
"""Those that keep the length of the longest draft, and every request."""
REAL_VOCABULARY = 10_000

SHARE = 16
"""Batches with small vocabularies for each with a real one."""

SEEDS = st.tuples(*(st.integers(0, 63) for _ in range(8))).map(
    lambda digits: sum(digit << 6 * place for place, digit in enumerate(digits))
)
"""By digits: among larger numbers Hypothesis mixes some that it finds in loaded modules, so batches
would depend on the backend, on its code, and on what its process did before."""


@frozen
class Form:
    """One kind of batch: see `Case`; vocabularies and lengths vary up to what is named here."""

    policy: Policy
    vocabularies: tuple[tuple[int, ...], ...]
    max_spec_len: int
    dtype: str
    draft_dtype: str
    id_dtype: str
    drafter: str
    features: frozenset[str]

    @property
    def vocab_sizes(self) -> tuple[int, ...]:
        """All of them."""
        return sum(self.vocabularies, ())

    @property
    def parts(self) -> "Iterator[Form]":
        """The same form for each vocabulary that is compiled by itself."""
        return (evolve(self, vocabularies=(sizes,)) for sizes in self.vocabularies)

    @property
    def share(self) -> int:
        """How many batches it gets, relative to others: large vocabularies take long to judge."""
        return 1 if max(self.vocab_sizes) > REAL_VOCABULARY else SHARE

    @property
    def cases(self) -> SearchStrategy[Case]:
        """Batches of this form."""
        case = st.sampled_from(self.vocab_sizes).flatmap(self._cases_of)
        # Hypothesis leaves the elements of collections without duplicates alone; others it copies,
        # and many batches would share a seed.
        cases = st.lists(case, min_size=1, max_size=1, unique=True).map(itemgetter(0))
        return cases.map(asking_for_all)

    def _cases_of(self, vocab_size: int) -> SearchStrategy[Case]:
        few = vocab_size > REAL_VOCABULARY
        # Several requests soon ask for all of their form's features, see `asking_for_all`.
        fewest, most = (2, 2) if few else (3, 4)
        others = st.lists(st.integers(0, self.max_spec_len), min_size=fewest, max_size=most)
        return st.builds(
            Case,
            seed=SEEDS,
            vocab_size=st.just(vocab_size),
            num_draft_tokens=others.map(lambda lengths: (*lengths, self.max_spec_len)),
            policy=st.just(self.policy),
            logits=st.sampled_from(LOGITS),
            drafter=st.just(self.drafter),
            dtype=st.just(self.dtype),
            draft_dtype=st.just(self.draft_dtype),
            id_dtype=st.just(self.id_dtype),
            features=st.just(self.features),
            twist=st.sampled_from(TWISTS),
        )


def forms(per_policy: int) -> Iterator[Form]:
    """So many of every policy, always the same ones.

    All but the policy is shared with others, and so are most of the kernels.
    """
    for number, policy in enumerate(POLICIES):
        for place in range(per_policy):
            yield _form(policy, place % len(SIZES), number + place // len(SIZES))


def _form(policy: Policy, which: int, turn: int) -> Form:
    size, number = SIZES[which], 2 * which + turn % 2
    others = frozenset(FEATURES) - size.features
    return Form(
        policy=policy,
        vocabularies=size.vocabularies,
        max_spec_len=size.longest - turn % 2,
        dtype=FLOAT_DTYPES[number % 3],
        draft_dtype=FLOAT_DTYPES[(number + number // 3) % 3],
        id_dtype=("int64", "int32")[(which + turn) % 2],
        drafter=DRAFTERS[number % len(DRAFTERS)],
        features=(others if turn % 2 else size.features) | {"temperature"},
    )
