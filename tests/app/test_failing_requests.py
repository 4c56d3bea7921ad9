"""Bad logits end one request, say why, and leave its neighbours as they were."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.app.request import FinishReason, GenerationRequest
from acceptor.core import Block, Policy, Probabilistic, SamplingParams, Status, Strict
from kit.toy_pair import NUM_CONTEXTS, Pair, TableModel

RECIPES: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"top_p": 0.8}]
POLICIES = [Strict(), Strict(coupled=True), Probabilistic(), Block()]
BATCH = [
    GenerationRequest(
        prompt_token_ids=[index + 1], params=SamplingParams(seed=index, **recipe), max_tokens=12
    )
    for index, recipe in enumerate(RECIPES)
]


def poisoned(model: TableModel, rows: Iterable[int], value: float) -> TableModel:
    table = model.table.clone()
    table[list(rows)] = value
    return evolve(model, table=table)


def context_of(*known: int) -> int:
    """The row of a table that a `TableModel` looks up after these tokens."""
    total = sum((token_id + 1) * place**2 for place, token_id in enumerate(known, start=1))
    return total % NUM_CONTEXTS


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=12, deadline=None)
@given(
    rows=st.sets(st.integers(0, 96), min_size=1, max_size=5),
    value=st.sampled_from([torch.nan, torch.inf, -torch.inf]),
    num_spec_tokens=st.integers(0, 6),
)
def test_bad_target_logits(
    pair: Pair, policy: Policy, rows: Iterable[int], value: float, num_spec_tokens: int
) -> None:
    sick = evolve(pair, target=poisoned(pair.target, rows, value))
    results = sick.decoder(policy, num_spec_tokens).generate(BATCH)
    for request, result in zip(BATCH, results, strict=True):
        (alone,) = sick.decoder(policy, num_spec_tokens).generate([request])
        assert alone == result
        (healthy,) = pair.decoder(policy, num_spec_tokens).generate([request])
        if result.finish_reason is FinishReason.ERROR:
            assert result.status == Status.TARGET_LOGITS_INVALID
            assert result.token_ids == healthy.token_ids[: len(result.token_ids)]
        else:
            assert result == healthy


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=12, deadline=None)
@given(
    rows=st.sets(st.integers(0, 96), min_size=1, max_size=5),
    value=st.sampled_from([torch.nan, torch.inf, -torch.inf]),
    num_spec_tokens=st.integers(1, 6),
)
def test_bad_draft_logits(
    pair: Pair, policy: Policy, rows: Iterable[int], value: float, num_spec_tokens: int
) -> None:
    sick = evolve(pair, draft=poisoned(pair.draft, rows, value))
    results = sick.decoder(policy, num_spec_tokens).generate(BATCH)
    for request, result in zip(BATCH, results, strict=True):
        (alone,) = sick.decoder(policy, num_spec_tokens).generate([request])
        assert alone == result
        (healthy,) = pair.decoder(policy, num_spec_tokens).generate([request])
        if result.finish_reason is not FinishReason.ERROR:
            assert (result.token_ids, result.status) == (healthy.token_ids, Status.OK)
            continue
        assert result.status == Status.DRAFT_LOGITS_INVALID
        assert result.token_ids == healthy.token_ids[: len(result.token_ids)]
        # It ends exactly where the drafter fails: not at a draft that was rejected before.
        assert context_of(*request.prompt_token_ids, *result.token_ids) in rows


def test_what_lies_behind_a_stop_is_not_an_error(pair: Pair) -> None:
    (healthy,) = pair.decoder(Strict(), 0).generate(BATCH[:1])
    third = healthy.token_ids[2]
    assert third not in healthy.token_ids[:2]
    # The row that decides the sixth token is bad, and the drafts up to there are all accepted.
    context = context_of(*BATCH[0].prompt_token_ids, *healthy.token_ids[:5])
    target = poisoned(pair.target, [context], torch.nan)
    decoder = evolve(pair, target=target, draft=pair.target).decoder(Strict(coupled=True), 8)
    failed, stopped = decoder.generate([BATCH[0], evolve(BATCH[0], stop_token_ids=[third])])
    assert failed.token_ids == healthy.token_ids[:5]
    assert (failed.finish_reason, failed.status) == ("error", Status.TARGET_LOGITS_INVALID)
    assert stopped.token_ids == healthy.token_ids[:3]
    assert (stopped.finish_reason, stopped.status) == ("stop", Status.OK)
