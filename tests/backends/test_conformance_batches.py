"""The conformance kit's random batches have everything that a backend can get wrong."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations

import pytest
import torch
from attrs import frozen
from torch import Tensor

from acceptor.backends.conformance import Case
from acceptor.backends.conformance.case import DRAFTERS, FEATURES, LOGITS, TWISTS
from acceptor.backends.conformance.drafting import arbitrary_batch
from acceptor.backends.conformance.inputs import make_inputs
from acceptor.backends.conformance.run import each_case
from acceptor.core import SamplingParams, VerifyBatch
from acceptor.core.sampling_params import LogprobsMode
from kit.proof.cases import POLICIES

CPU = torch.device("cpu")
# Hypothesis mixes in constants of whatever is loaded, so runs differ: enough for the rarest kind.
NUM_BATCHES = 1000
MOST_TOKENS = 3000


@frozen(eq=False)
class Generated:
    case: Case
    batch: VerifyBatch
    wishes: tuple[SamplingParams, ...]

    @property
    def target_rows(self) -> Tensor:
        return self.batch.target_logits.float()

    @property
    def draft_rows(self) -> Tensor:
        """Those that are read: a slot has no more than its request's draft."""
        logits = self.batch.draft_logits
        if logits is None:
            return torch.zeros(0, 1)
        slots = range(len(self.wishes)) if self.batch.slot_ids is None else self.batch.slot_ids
        lengths = self.case.num_draft_tokens
        rows = [logits[slot, :k] for slot, k in zip(slots, lengths, strict=True)]
        return torch.cat([logits.new_zeros(0, logits.shape[-1]), *rows]).float()

    @property
    def draft_ids(self) -> list[int]:
        rows = zip(self.batch.draft_token_ids.tolist(), self.case.num_draft_tokens, strict=True)
        return [token_id for row, length in rows for token_id in row[:length]]

    @property
    def vocab_size(self) -> int:
        return self.case.vocab_size


@cache
def drawn_cases() -> tuple[Case, ...]:
    found: list[Case] = []

    def keep(case: Case) -> None:
        found.append(case)

    each_case(keep, chunk=1, num_batches=NUM_BATCHES)
    return tuple(found)


@cache
def generated() -> tuple[Generated, ...]:
    return tuple(map(_generated, filter(lambda c: c.vocab_size <= MOST_TOKENS, drawn_cases())))


def _generated(case: Case) -> Generated:
    inputs = make_inputs(case, CPU)
    return Generated(case, arbitrary_batch(case, inputs), inputs.wishes)


def ties(rows: Tensor) -> bool:
    """Whether some row's highest logit is not alone."""
    highest = rows.amax(dim=-1, keepdim=True)
    return bool(((rows == highest) & highest.isfinite()).sum(dim=-1).gt(1).any())


def is_padded(logits: Tensor | None) -> bool:
    return logits is not None and logits.numel() > 0 and logits.stride(-2) > logits.shape[-1]


def out_of_order(slots: Tensor | None) -> bool:
    return slots is not None and slots.tolist() != sorted(slots.tolist())


KINDS: dict[str, Callable[[Generated], bool]] = {
    "no requests": lambda g: not g.wishes,
    "many requests": lambda g: len(g.wishes) > 4,
    "ragged": lambda g: len(set(g.case.num_draft_tokens)) > 2,
    "K = 0 beside others": lambda g: {0} < set(g.case.num_draft_tokens),
    "K = 0 for all": lambda g: {0} == set(g.case.num_draft_tokens),
    "long drafts": lambda g: max(g.case.num_draft_tokens, default=0) > 8,
    "room for longer drafts": lambda g: (
        g.batch.max_spec_len > max(g.case.num_draft_tokens, default=0)
    ),
    "one-hot drafts": lambda g: g.batch.draft_logits is None and bool(g.draft_ids),
    "greedy drafts of sampled requests": lambda g: any(
        w.draft is not None and w.draft.is_greedy and not w.is_greedy for w in g.wishes
    ),
    "ties for the most likely": lambda g: ties(g.target_rows),
    "ties in the draft": lambda g: ties(g.draft_rows),
    "target rows of only -inf": lambda g: bool((g.target_rows == -torch.inf).all(dim=-1).any()),
    "draft rows of only -inf": lambda g: bool((g.draft_rows == -torch.inf).all(dim=-1).any()),
    "target rows with -inf": lambda g: bool(g.target_rows.isneginf().any()),
    "target rows with NaN": lambda g: bool(g.target_rows.isnan().any()),
    "draft rows with NaN": lambda g: bool(g.draft_rows.isnan().any()),
    "target rows with +inf": lambda g: bool(g.target_rows.isposinf().any()),
    "draft rows with +inf": lambda g: bool(g.draft_rows.isposinf().any()),
    "drafts that end with -1": lambda g: -1 in g.draft_ids,
    "draft ids below -1": lambda g: min(g.draft_ids, default=0) < -1,
    "draft ids from V": lambda g: max(g.draft_ids, default=0) >= g.vocab_size,
    "drafts that the draft cannot draw": lambda g: g.case.drafter == "mapped" and bool(g.draft_ids),
    "a vocabulary of one": lambda g: g.vocab_size == 1,
    "odd V": lambda g: g.vocab_size % 2 == 1 and g.vocab_size > 512,
    "V of whole blocks": lambda g: g.vocab_size % 512 == 0,
    "padded target rows": lambda g: is_padded(g.batch.target_logits),
    "padded draft rows": lambda g: is_padded(g.batch.draft_logits),
    "permuted slots": lambda g: out_of_order(g.batch.slot_ids),
    "more slots than requests": lambda g: (
        g.batch.draft_logits is not None and len(g.batch.draft_logits) > len(g.wishes)
    ),
    "a narrower draft": lambda g: 0 < g.draft_rows.shape[-1] < g.vocab_size and bool(g.draft_ids),
    "positions near 2**31": lambda g: max(g.batch.positions.tolist(), default=0) > 2**30,
    "seeds with their sign bit": lambda g: any((w.seed or 0) >= 2**63 for w in g.wishes),
    "greedy beside sampled": lambda g: {True, False} == {w.is_greedy for w in g.wishes},
    "filters beside none": lambda g: {True, False} == {w.has_filters for w in g.wishes},
}


@pytest.mark.parametrize("kind", KINDS)
def test_batches_have(kind: str) -> None:
    assert sum(map(KINDS[kind], generated())) >= 3


def traits(wishes: SamplingParams) -> Iterator[str]:
    """What one request asks for."""
    asked = {
        "greedy": wishes.is_greedy,
        "temperature": wishes.temperature not in (0, 1),
        "min-p": wishes.min_p > 0,
        "top-k": wishes.top_k > 0,
        "top-p": wishes.top_p < 1,
        "bias": bool(wishes.logit_bias),
        "penalties": wishes.has_penalties,
        "draft recipe": wishes.draft is not None,
        "raw logprobs": wishes.logprobs is not None and wishes.logprobs_mode is LogprobsMode.RAW,
        "processed logprobs": wishes.logprobs is not None
        and wishes.logprobs_mode is LogprobsMode.PROCESSED,
    }
    return (name for name, there in asked.items() if there)


EXCLUSIVE = {("greedy", "temperature"), ("processed logprobs", "raw logprobs")}


def test_requests_have_every_mix_of_two_parameters() -> None:
    wishes = [w for g in generated() for w in g.wishes]
    alone = {name for w in wishes for name in traits(w)}
    together = {pair for w in wishes for pair in combinations(sorted(traits(w)), 2)}
    assert len(alone) == 10
    assert together == set(combinations(sorted(alone), 2)) - EXCLUSIVE


@pytest.mark.parametrize(
    ("values", "of_case"),
    [
        ({type(policy) for policy in POLICIES}, lambda case: type(case.policy)),
        (LOGITS, lambda case: case.logits),
        (DRAFTERS, lambda case: case.drafter),
        (TWISTS, lambda case: case.twist),
        (("int32", "int64"), lambda case: case.id_dtype),
    ],
    ids=["policies", "logits", "drafters", "twists", "integers"],
)
def test_every_choice_is_made(values: object, of_case: Callable[[Case], object]) -> None:
    assert set(map(of_case, drawn_cases())) == set(values)  # type: ignore[call-overload]


def test_every_pair_of_dtypes_and_of_features_is_there() -> None:
    cases = drawn_cases()
    assert len({(case.dtype, case.draft_dtype) for case in cases}) == 9
    pairs = {pair for case in cases for pair in combinations(sorted(case.features), 2)}
    assert pairs == set(combinations(sorted(FEATURES), 2))


def test_a_few_batches_are_as_large_as_real_vocabularies() -> None:
    large = sum(case.vocab_size > 50_000 for case in drawn_cases())
    assert 0 < large < NUM_BATCHES / 30


def test_hardly_any_batch_repeats_another_s_numbers() -> None:
    assert len({case.seed for case in drawn_cases()}) > 0.85 * NUM_BATCHES
