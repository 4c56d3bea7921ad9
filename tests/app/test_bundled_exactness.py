"""Strict verification on the bundled pair: what plain decoding emits, token for token.

Models compute in float32, where five tokens in one forward and one token at a time differ in the
last bits. A difference is excused only if it stems from a near-tie: the scores of both candidates,
recomputed in float64, are closer than 1e-5 relative. Excuses are counted and printed.
"""

import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.app.config import Config, DecodingConfig
from acceptor.app.drafter import NoDrafter
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.schedule import Limits
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import GenerationRequest, GenerationResult
from acceptor.app.wiring import Wired, wire
from acceptor.backends.reference.thresholds import log_probs
from acceptor.core import Level, SamplingParams, SamplingTensors, Stream, Strict
from acceptor.core.race import BLOCK_SIZE
from acceptor.core.randomness import exponential, random_words
from lab.acceptance_table import PROMPTS

NEAR = 1e-5
MAX_TOKENS = 12
RECIPES: list[dict[str, Any]] = [
    {"temperature": temperature, "top_p": top_p}
    for temperature, top_p in product((0.0, 0.5, 0.8, 1.0, 1.3), (0.7, 0.95, 1.0))
]
NUM_SHARES = 4


@pytest.fixture(scope="module")
def wired() -> Wired:
    return wire(Config(decoding=DecodingConfig(num_spec_tokens=8)))


@pytest.fixture(scope="module")
def requests(wired: Wired) -> list[GenerationRequest]:
    """Every other prompt; recipes take turns, and meet every prompt's kind."""
    return [
        GenerationRequest(
            prompt_token_ids=wired.tokenizer.encode(prompt),
            params=SamplingParams(seed=index, **RECIPES[index % len(RECIPES)]),
            max_tokens=MAX_TOKENS,
        )
        for index, prompt in enumerate(PROMPTS[::2])
    ]


@pytest.fixture(scope="module")
def plain(wired: Wired, requests: list[GenerationRequest]) -> list[GenerationResult]:
    return evolve(wired.decoder, drafter=NoDrafter()).generate(requests)


@pytest.mark.slow
@pytest.mark.parametrize("coupled", [False, True], ids=["independent", "coupled"])
@pytest.mark.parametrize("num_spec_tokens", range(1, 9))
def test_strict_equals_plain(
    wired: Wired,
    requests: list[GenerationRequest],
    plain: list[GenerationResult],
    num_spec_tokens: int,
    coupled: bool,
) -> None:
    policy = Strict(coupled=coupled)
    assert isinstance(wired.decoder.drafter, ModelDrafter)
    drafter = evolve(wired.decoder.drafter, policy=policy, num_spec_tokens=num_spec_tokens)
    # Each of the sixteen combinations takes a quarter of the requests; each of them meets four.
    share = slice((2 * num_spec_tokens + coupled) % NUM_SHARES, None, NUM_SHARES)
    results = evolve(wired.decoder, policy=policy, drafter=drafter).generate(requests[share])
    assert len(results) >= len(requests) // NUM_SHARES
    check_equal(wired, requests[share], plain[share], results)


def test_a_request_gets_what_it_would_get_alone(
    wired: Wired, requests: list[GenerationRequest]
) -> None:
    policy = Strict(coupled=True)
    assert isinstance(wired.decoder.drafter, ModelDrafter)
    drafter = evolve(wired.decoder.drafter, policy=policy)
    decoder = evolve(wired.decoder, policy=policy, drafter=drafter)
    wanted = [
        evolve(request, num_spec_tokens=index % 6, max_tokens=6 + index % 7)
        for index, request in enumerate(requests[3::6])
    ]
    engine = Engine.of(decoder, Limits(num_slots=3, max_len=64, prefill_tokens=8))
    alone = [decoder.generate([request])[0] for request in wanted]
    check_equal(wired, wanted, alone, engine.generate(wanted))


def check_equal(
    wired: Wired,
    requests: Sequence[GenerationRequest],
    expected: Sequence[GenerationResult],
    results: Sequence[GenerationResult],
) -> None:
    num_excused = 0
    for request, want, got in zip(requests, expected, results, strict=True):
        if got.token_ids != want.token_ids:
            num_excused += 1
            assert is_near_tie(wired, request, want.token_ids, got.token_ids)
    # Shown by pytest -rP.
    sys.stdout.write(f"{num_excused} of {len(results)} outputs excused as near-ties\n")


def is_near_tie(
    wired: Wired, request: GenerationRequest, expected: tuple[int, ...], got: tuple[int, ...]
) -> bool:
    """Whether the first two tokens that differ had nearly the same score."""
    place = next(i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b)
    known = [*request.prompt_token_ids, *expected[:place]]
    params = SamplingTensors.stack([request.params])
    law = log_probs(next_logits(wired, known), params.target, torch.tensor([0]))
    if request.params.is_greedy:
        law = next_logits(wired, known)
        return are_near(law[0, expected[place]], law[0, got[place]])
    tokens = torch.tensor([expected[place], got[place]])
    blocks = tokens // BLOCK_SIZE
    if blocks[0] != blocks[1]:
        masses = law.view(-1, BLOCK_SIZE).logsumexp(-1)
        return are_near(*scores(masses[blocks], blocks, Level.BLOCK, params, len(known)))
    return are_near(*scores(law[0, tokens], tokens, Level.TOKEN, params, len(known)))


def next_logits(wired: Wired, known: Sequence[int]) -> Tensor:
    target = wired.decoder.target
    cache = target.new_cache(1, len(known))
    positions = torch.arange(len(known))[None]
    logits = target.forward(torch.tensor([known]), positions, cache, torch.tensor([0])).logits
    return logits[:, -1].double()


def scores(
    log_weights: Tensor, candidates: Tensor, level: Level, params: SamplingTensors, position: int
) -> Tensor:
    """What the race compares, for some candidates."""
    first = candidates // 4 * 4
    rows = first[:, None] + torch.arange(4)
    ones = torch.ones_like(first)
    words = random_words(params.seeds * ones, position * ones, 0 * ones, Stream.TARGET, level, rows)
    own = words.gather(1, (candidates - first)[:, None]).squeeze(1)
    return log_weights - exponential(own).log()


def are_near(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs() <= NEAR * torch.maximum(one.abs(), other.abs()))


def test_the_judge_sees_what_the_race_decides(wired: Wired) -> None:
    request = GenerationRequest(
        prompt_token_ids=wired.tokenizer.encode("The house"), params=SamplingParams(seed=1)
    )
    drawn = evolve(wired.decoder, drafter=NoDrafter()).generate([evolve(request, max_tokens=1)])
    law = next_logits(wired, request.prompt_token_ids).log_softmax(-1)
    params = SamplingTensors.stack([request.params])
    everything = torch.arange(law.shape[1])
    position = len(request.prompt_token_ids)
    blocks = everything[: len(everything) // BLOCK_SIZE]
    masses = law.view(-1, BLOCK_SIZE).logsumexp(-1)
    block = scores(masses, blocks, Level.BLOCK, params, position).argmax()
    inside = everything.view(-1, BLOCK_SIZE)[block]
    best = scores(law[0, inside], inside, Level.TOKEN, params, position).argmax()
    winner = int(inside[best])
    assert drawn[0].token_ids == (winner,)
    assert not is_near_tie(wired, request, (winner,), (winner + 1,))
