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
from kit.toy_pair import Pair, TableModel

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
        if result.finish_reason is FinishReason.ERROR:
            assert result.status == Status.DRAFT_LOGITS_INVALID
        assert result.token_ids == healthy.token_ids[: len(result.token_ids)]


def test_what_lies_behind_a_stop_is_not_an_error(pair: Pair) -> None:
    decoder = pair.decoder(Strict(), 6)
    (healthy,) = decoder.generate(BATCH[:1])
    length = 5
    known = [1, *healthy.token_ids[:length]]
    context = (sum((t + 1) * (i + 1) ** 2 for i, t in enumerate(known))) % 97
    sick = evolve(pair, target=poisoned(pair.target, [context], torch.nan))
    (failed,) = sick.decoder(Strict(), 6).generate(BATCH[:1])
    assert len(failed.token_ids) <= length
    (stopped,) = sick.decoder(Strict(), 6).generate(
        [evolve(BATCH[0], max_tokens=len(failed.token_ids))]
    )
    assert stopped.token_ids == failed.token_ids
    assert (failed.finish_reason, stopped.finish_reason) == ("error", "length")
    assert stopped.status == Status.OK
