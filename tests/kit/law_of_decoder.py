"""The law of what the application decodes, its own drafters included, by enumeration."""

from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor

from acceptor.app.decoder import Decoder
from acceptor.app.request import GenerationRequest
from acceptor.core import LanguageModel, SamplingParams
from kit.decode_law import Law, Tokens
from kit.hidden_noise import Branch, HiddenNoise, branches, replaced_by
from kit.laws.exact import Floats, conditional, largest, sequence_law

PROMPT = (1, 0, 1)


def emitted_law(decoder: Decoder, params: SamplingParams, num_tokens: int) -> Law:
    """Every way a request can be decoded, with its probability."""
    request = GenerationRequest(prompt_token_ids=PROMPT, params=params, max_tokens=num_tokens)
    noise, law = HiddenNoise(horizon=len(PROMPT) + num_tokens), defaultdict[Tokens, float](float)

    def run(branch: Branch) -> Tokens:
        noise.begin(branch, ())
        return decoder.generate([request])[0].token_ids

    with replaced_by(noise):
        for probability, tokens in branches(run):
            law[tokens] += probability
    return dict(law)


def next_logits(target: LanguageModel[Any], known: Tokens) -> Tensor:
    """[vocab_size] float64, after all of these tokens."""
    cache, positions = target.new_cache(1, len(known)), torch.arange(len(known))[None]
    scores = target.forward(torch.tensor([known]), positions, cache, torch.tensor([0]))
    return scores.logits[0, -1].double()


def error_of(decoder: Decoder, params: SamplingParams, num_tokens: int) -> float:
    """The largest of all conditional probabilities, compared with plain sampling's."""
    emitted = emitted_law(decoder, params, num_tokens)

    def model(output: Tokens) -> Floats:
        return next_logits(decoder.target, PROMPT + output).numpy()

    expected = sequence_law(model, params, num_tokens, PROMPT)
    assert sum(emitted.values()) == pytest.approx(1.0)
    return max(
        largest(conditional(emitted, n), conditional(expected, n)) for n in range(1, num_tokens + 1)
    )
