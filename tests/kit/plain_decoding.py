"""What drafts must not change: greedy, what a target generates; strict, what it says plain."""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import evolve

from acceptor.app.decoder import Decoder
from acceptor.app.drafter import NoDrafter
from acceptor.app.request import GenerationResult
from kit.toy_requests import ask

PROMPTS = ((5,), (7, 3, 9, 9, 4, 11, 2), (8, 2, 30, 41, 6, 5, 3, 20, 10, 4, 12, 33))
"""One that leaves a drafter nothing to read, and others of unequal lengths."""

NUM_TOKENS = 10


def assert_equals_generate(decoder: Decoder, reference: Any) -> list[GenerationResult]:
    """Greedy requests get what transformers' model generates; returns their results."""
    requests = [ask(*prompt, temperature=0, max_tokens=NUM_TOKENS) for prompt in PROMPTS]
    results = decoder.generate(requests)
    for prompt, result in zip(PROMPTS, results, strict=True):
        with torch.inference_mode():
            expected = reference.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
                do_sample=False,
                max_new_tokens=NUM_TOKENS,
                min_new_tokens=NUM_TOKENS,
                eos_token_id=None,
            )
        assert list(result.token_ids) == expected[0, len(prompt) :].tolist()
    return results


def assert_equals_plain(strict: Decoder) -> list[GenerationResult]:
    """Under a strict policy drafts change no token; returns the results with drafts."""
    requests = [ask(*p, seed=i, max_tokens=NUM_TOKENS) for i, p in enumerate(PROMPTS)]
    results = strict.generate(requests)
    plain = evolve(strict, drafter=NoDrafter()).generate(requests)
    assert token_ids_of(results) == token_ids_of(plain)
    return results


def token_ids_of(results: Sequence[GenerationResult]) -> list[tuple[int, ...]]:
    return [result.token_ids for result in results]
