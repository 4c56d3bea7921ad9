"""The conformance kit's random batches include everything that a backend can get wrong."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations

import pytest
import torch
from torch import Tensor

from acceptor.backends.conformance import Case, Generator
from acceptor.backends.conformance.case import DRAFTERS, FEATURES, LOGITS, NUM_SHAPES, VARIATIONS
from acceptor.backends.conformance.inputs import make_inputs, varied
from acceptor.backends.conformance.requests import Inputs
from acceptor.core import Fly, LogprobsMode, Policy, SamplingParams, Typical
from acceptor.core.policies import POLICIES
from acceptor.core.tensor_fields import named_tensors

NUM_BATCHES = 1000
MOST_TOKENS = 1600

CASES = [*Generator().cases(1, NUM_BATCHES)]


@cache
def generated() -> tuple[Inputs, ...]:
    small = (case for case in CASES if case.vocab_size <= MOST_TOKENS)
    return tuple(make_inputs(case).with_arbitrary_drafts() for case in small)


def bad_values(rows: Tensor) -> dict[str, bool]:
    """Which bad values some rows hold."""
    highest = rows.amax(dim=-1, keepdim=True) if rows.numel() else rows
    alone = ((rows == highest) & highest.isfinite()).sum(dim=-1) <= 1
    return {
        "ties for the most likely": not bool(alone.all()),
        "only -inf": bool((rows == -torch.inf).all(dim=-1).any()),
        "NaN": bool(rows.isnan().any()),
        "+inf": bool(rows.isposinf().any()),
    }


def is_padded(logits: Tensor | None) -> bool:
    return logits is not None and logits.numel() > 0 and logits.stride(-2) > logits.shape[-1]


def kinds(some: Inputs) -> dict[str, bool]:
    case, batch, params = some.case, some.verify_batch(), some.params
    lengths, slots = {*case.num_draft_tokens}, batch.slot_ids
    ids = [token_id for request in some.requests for token_id in request.draft_token_ids]
    rows = {"target": batch.target_logits.float(), "draft": torch.zeros(0, 1)}
    if batch.draft_logits is not None and some.requests:
        rows["draft"] = torch.cat([request.draft_logits for request in some.requests]).float()
    finite = rows["target"].nan_to_num(0, 0, 0)
    found = {
        "no requests": not params,
        "hundreds of requests": len(params) > 100,
        "ragged": len(lengths) > 2,
        "K = 0 beside others": lengths > {0},
        "K = 0 for all": lengths == {0},
        "long drafts": max(lengths, default=0) > 16,
        "room for longer drafts": batch.max_spec_len > max(lengths, default=0),
        "one-hot drafts": batch.draft_logits is None and bool(ids),
        "greedy drafts of sampled requests": any(
            p.draft is not None and p.draft.is_greedy and not p.is_greedy for p in params
        ),
        "some -inf": bool(rows["target"].isneginf().any()),
        "spans of more than float32": bool((finite.amax(-1) - finite.amin(-1)).isinf().any()),
        "drafts that end with -1": -1 in ids,
        "draft ids below -1": min(ids, default=0) < -1,
        "draft ids from V": max(ids, default=0) >= case.vocab_size,
        "odd V": case.vocab_size % 2 == 1 and case.vocab_size > 512,
        "V of whole blocks": case.vocab_size % 512 == 0,
        "a vocabulary of one": case.vocab_size == 1,
        "padded target rows": is_padded(batch.target_logits),
        "padded draft rows": is_padded(batch.draft_logits),
        "permuted slots": slots is not None and slots.tolist() != sorted(slots.tolist()),
        "positions near 2**31": max(batch.positions.tolist(), default=0) > 2**30,
        "seeds with their sign bit": any((p.seed or 0) >= 2**63 for p in params),
        "greedy beside sampled": {True, False} == {p.is_greedy for p in params},
        "extreme temperatures": max((p.temperature for p in params), default=0) > 1e5,
        "extreme biases": any(1e8 < abs(b) < math.inf for p in params for _, b in p.logit_bias),
        "extreme penalties": any(abs(p.presence_penalty) > 1e5 for p in params),
        "twenty logprobs": any((p.logprobs or 0) == 20 for p in params),
        "filters beside none": {True, False} == {p.has_filters for p in params},
    }
    for owner, of_owner in rows.items():
        found |= {f"{owner}: {name}": there for name, there in bad_values(of_owner).items()}
    return found


def test_batches_have_everything() -> None:
    seen = Counter(name for some in generated() for name, there in kinds(some).items() if there)
    rare = {name for name in kinds(generated()[0]) if seen[name] < 3}
    assert rare == set()


def traits(params: SamplingParams) -> Iterator[str]:
    """The traits of one request."""
    asked = {
        "greedy": params.is_greedy,
        "temperature": params.temperature not in (0, 1),
        "min-p": params.min_p > 0,
        "top-k": params.top_k > 0,
        "top-p": params.top_p < 1,
        "bias": bool(params.logit_bias),
        "penalties": params.has_penalties,
        "draft recipe": params.draft is not None,
        "raw logprobs": params.logprobs is not None and params.logprobs_mode is LogprobsMode.RAW,
        "processed logprobs": params.logprobs is not None
        and params.logprobs_mode is LogprobsMode.PROCESSED,
    }
    return (name for name, there in asked.items() if there)


LAWS = {type(policy) for policy in POLICIES.values()}
EXCLUSIVE = {("greedy", "temperature"), ("processed logprobs", "raw logprobs")}


def test_requests_have_every_mix_of_two_parameters() -> None:
    wanted = [p for g in generated() for p in g.params]
    alone = {name for p in wanted for name in traits(p)}
    together = {pair for p in wanted for pair in combinations(sorted(traits(p)), 2)}
    assert len(alone) == 10
    assert together == set(combinations(sorted(alone), 2)) - EXCLUSIVE


OF_FORMS = Generator(num_forms=48)
FORMS = [*map(OF_FORMS.form, range(48))]


@pytest.mark.parametrize("cases", [CASES, FORMS], ids=["cases", "forms"])
def test_every_choice_is_made(cases: list[Case]) -> None:
    assert {type(case.policy) for case in cases} == LAWS
    assert {case.drafter for case in cases} == {*DRAFTERS}
    assert {case.id_dtype for case in cases} == {"int32", "int64"}
    assert len({(case.dtype, case.draft_dtype) for case in cases}) == 9
    assert max(case.vocab_size for case in cases) > 150_000
    for feature in FEATURES:
        assert len({case.has(feature) for case in cases}) == 2


def test_random_cases_have_every_pair_of_features_and_seeds_of_their_own() -> None:
    assert {case.logits for case in CASES} == {*LOGITS}
    assert {case.variation for case in CASES} == {*VARIATIONS}
    pairs = {pair for case in CASES for pair in combinations(sorted(case.features), 2)}
    assert pairs == set(combinations(sorted(FEATURES), 2))
    assert len({case.seed for case in CASES}) == NUM_BATCHES


def launched(some: Inputs) -> tuple[object, ...]:
    """All properties of a verification that kernels may be compiled for."""
    batch, params = some.verify_batch(), some.params_by_slot()
    strides = [(name, tensor.stride()) for name, tensor in named_tensors((batch, params))]
    target, asked = params.target, (params.num_logprobs, params.target.all_greedy)
    return *strides, *asked, target.any_min_p, target.any_top_k, target.any_top_p


@pytest.mark.parametrize("number", [0, 9, 18])
def test_a_form_has_few_shapes_which_decide_what_is_compiled(number: int) -> None:
    generator = Generator(largest_vocabulary=1100, num_forms=48)
    kinds = defaultdict[int | None, set[object]](set)
    for case in generator.cases(number, 10 * NUM_SHAPES):
        # A batch without requests compiles nothing, and crowds are rare.
        if 0 < len(case.num_draft_tokens) < 60:
            inputs = make_inputs(case).with_arbitrary_drafts()
            kinds[case.shape] |= {launched(inputs), launched(varied(inputs)[0])}
            assert max(case.num_draft_tokens) == max(generator.form(number).num_draft_tokens)
            asked = {"bias", "min-p", "penalties", "top-k", "top-p"} & case.features
            assert asked <= {*traits(inputs.params[0])}
    assert len(kinds) == NUM_SHAPES
    assert max(map(len, kinds.values())) == 2


def test_a_chunk_has_the_same_batches_every_time() -> None:
    first = [case.to_json() for case in Generator().cases(3, 60)]
    assert first == [case.to_json() for case in Generator().cases(3, 60)]
    assert [Case.from_json(text).to_json() for text in first] == first
    assert first != [case.to_json() for case in Generator().cases(4, 60)]


@pytest.mark.parametrize("policy", [Fly(min_entropy=1.0), Typical(delta=1.0)])
def test_even_laws_are_left_out_of_cases(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptor.backends.conformance.case._variant", lambda *_: policy)
    cases = [*Generator((policy.name,), 100).cases(0, 100)]
    assert {case.logits for case in cases} == {*LOGITS} - {"constant", "even", "mixed"}
    assert not any(case.has("extremes") for case in cases)
