"""Masks in decoder and engine: only allowed tokens come, and drafts change nothing."""

from functools import partial

import pytest
import torch
from attrs import evolve

from acceptor.app.engine.capture import Record
from acceptor.app.request import FinishReason, GenerationRequest
from acceptor.app.token_masks import NewTokenMasks, fill_masks
from acceptor.core import (
    Block,
    Fly,
    InvalidInputError,
    Policy,
    Probabilistic,
    Status,
    Strict,
    Synthetic,
    pack_allowed,
)
from kit.toy_engine import engine_with, record
from kit.toy_masks import ByLast
from kit.toy_pair import VOCAB_SIZE, Pair
from kit.toy_requests import ask


def asking(*new_masks: NewTokenMasks | None) -> list[GenerationRequest]:
    return [
        ask(seed + 1, 2, seed=seed, max_tokens=20, temperature=1.3, new_masks=new)
        for seed, new in enumerate(new_masks)
    ]


MIXED = (ByLast, None, ByLast, ByLast, None)


@pytest.mark.parametrize(
    "policy", [Probabilistic(), Block(), Strict(), Synthetic((1.0,)), Fly(0, 0)]
)
def test_only_allowed_tokens_come(pair: Pair, policy: Policy) -> None:
    # Each that comes is held to its mask by `accept`.
    results = pair.decoder(policy, 4).generate(asking(*[ByLast] * 5))
    assert [len(result.token_ids) for result in results] == [20] * 5
    assert sum(result.statistics.num_accepted_tokens for result in results) > 0


@pytest.mark.parametrize("coupled", [False, True])
def test_strict_emits_what_masked_plain_decoding_emits(pair: Pair, coupled: bool) -> None:
    requests = asking(*MIXED)
    plain = pair.decoder(Strict(), 0).generate(requests)
    strict = pair.decoder(Strict(coupled=coupled), 4).generate(requests)
    assert [each.token_ids for each in strict] == [each.token_ids for each in plain]


@pytest.mark.parametrize("recorded", [record, None])
def test_neighbours_get_what_they_get_alone(pair: Pair, recorded: Record | None) -> None:
    decoder, requests = pair.decoder(Block(), 3), asking(*MIXED)
    alone = [decoder.generate([request])[0].token_ids for request in requests]
    # With three slots for five requests, steps with masks and without follow each other.
    together = engine_with(decoder, recorded).generate(requests)
    assert [result.token_ids for result in together] == alone
    assert alone[0] != decoder.generate([evolve(requests[0], new_masks=None)])[0].token_ids


def test_a_dead_end_is_told_and_what_came_before_stands(pair: Pair) -> None:
    decoder = pair.decoder(Probabilistic(), 4)
    dead, alive = decoder.generate(asking(partial(ByLast, dead_end=4), ByLast))
    assert (dead.finish_reason, dead.status) == (FinishReason.ERROR, Status.NOTHING_ALLOWED)
    assert dead.token_ids.index(4) == len(dead.token_ids) - 1
    assert len(alive.token_ids) == 20


def test_a_draft_that_ends_early_needs_no_masks_behind_it() -> None:
    masks = fill_masks([None, ByLast()], [[5, 6], [1, -1]], VOCAB_SIZE)
    assert masks.allowed_rows.tolist() == [-1, -1, -1, 0, 1, 2]
    kept = pack_allowed(torch.stack([ByLast().allowed(last) for last in (0, 1)]))
    assert torch.equal(masks.allowed_tokens[:2], kept)


def test_masks_are_made_for_each_output() -> None:
    with pytest.raises(InvalidInputError, match=r"^new_masks: expected a function, got "):
        ask(1, new_masks=ByLast())
