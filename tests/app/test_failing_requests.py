"""Bad logits end one request, say why, and leave its neighbours as they were."""

from collections.abc import Iterable

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.app.request import FinishReason
from acceptor.core import Block, Policy, Probabilistic, Status, Strict
from kit.toy_pair import NUM_CONTEXTS, Pair, TableModel
from kit.toy_requests import ask

BATCH = [
    ask(1, seed=0, max_tokens=12),
    ask(2, seed=1, temperature=0.0, max_tokens=12),
    ask(3, seed=2, top_p=0.8, max_tokens=12),
]


def poisoned(model: TableModel, rows: Iterable[int], value: float) -> TableModel:
    table = model.table.clone()
    table[list(rows)] = value
    return evolve(model, table=table)


def context_of(*known: int) -> int:
    """The row of a table that a `TableModel` looks up after these tokens."""
    total = sum((token_id + 1) * place**2 for place, token_id in enumerate(known, start=1))
    return total % NUM_CONTEXTS


@pytest.mark.parametrize("side", ["target", "draft"])
@pytest.mark.parametrize(
    "policy", [Strict(), Strict(coupled=True), Probabilistic(), Block()], ids=lambda p: p.name
)
@settings(max_examples=6)
@given(
    rows=st.sets(st.integers(0, 96), min_size=1, max_size=5),
    value=st.sampled_from([torch.nan, torch.inf, -torch.inf]),
    num_spec_tokens=st.integers(0, 6),
)
def test_bad_logits_end_a_request_where_they_are_needed(
    pair: Pair, side: str, policy: Policy, rows: set[int], value: float, num_spec_tokens: int
) -> None:
    sick = evolve(pair, **{side: poisoned(getattr(pair, side), rows, value)})
    healthy = pair.decoder(policy, num_spec_tokens).generate(BATCH)
    decoder = sick.decoder(policy, num_spec_tokens)
    for request, result, whole in zip(BATCH, decoder.generate(BATCH), healthy, strict=True):
        assert decoder.generate([request]) == [result]
        if result.finish_reason is FinishReason.ERROR:
            assert result.status is Status[f"{side.upper()}_LOGITS_INVALID"]
            # It ends exactly where a model fails: not at a draft that was rejected before.
            assert context_of(*request.prompt_token_ids, *result.token_ids) in rows
        else:
            assert (result.status, result.finish_reason) == (Status.OK, whole.finish_reason)
        # Block judges a place by those behind it, so a shorter draft may have other ends.
        if policy != Block():
            assert result.token_ids == whole.token_ids[: len(result.token_ids)]
            assert side == "draft" or result.status or result == whole


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
