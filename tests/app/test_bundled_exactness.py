"""Strict verification on the bundled pair: what plain decoding emits, token for token.

The target computes in float64: rounded to float32, its logits do not depend on how many tokens are
scored at once.
"""

from itertools import product
from typing import Any

import pytest
import torch
from attrs import evolve, frozen

from acceptor.adapters.checkpoint import Checkpoint
from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.weights import WeightReader
from acceptor.app.config import Config, DecodingConfig
from acceptor.app.decoder import Decoder
from acceptor.app.drafter import NoDrafter
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.schedule import Limits
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import GenerationRequest, GenerationResult
from acceptor.app.wiring import Wired, wire
from acceptor.core import SamplingParams, Scores, Strict
from lab.acceptance_table import PROMPTS

MAX_TOKENS = 12
RECIPES: list[dict[str, Any]] = [
    {"temperature": temperature, "top_p": top_p}
    for temperature, top_p in product((0.0, 0.5, 0.8, 1.0, 1.3), (0.7, 0.95, 1.0))
]
NUM_SHARES = 4


@frozen(eq=False)
class Precise(TransformerModel):
    """Computes in the dtype of its weights, and answers in float32."""

    def forward(self, *args: Any, **options: Any) -> Scores:
        return Scores(super().forward(*args, **options).logits.float())


@pytest.fixture(scope="module")
def wired() -> Wired:
    wired = wire(Config(decoding=DecodingConfig(num_spec_tokens=8)))
    target: Any = wired.decoder.target
    tensors, cpu = Checkpoint.open(wired.directory), torch.device("cpu")
    weights = WeightReader(tensors, target.config, torch.float64, cpu).decoder()
    precise = Precise(target.config, weights, target.max_model_len)
    return evolve(wired, decoder=evolve(wired.decoder, target=precise))


@pytest.fixture(scope="module")
def requests(wired: Wired) -> list[GenerationRequest]:
    """One prompt in four; recipes take turns, and meet every prompt's kind."""
    return [
        GenerationRequest(
            prompt_token_ids=wired.tokenizer.encode(prompt),
            params=SamplingParams(seed=index, **RECIPES[index % len(RECIPES)]),
            max_tokens=MAX_TOKENS,
        )
        for index, prompt in enumerate(PROMPTS[::4])
    ]


@pytest.fixture(scope="module")
def plain(wired: Wired, requests: list[GenerationRequest]) -> list[GenerationResult]:
    return evolve(wired.decoder, drafter=NoDrafter()).generate(requests)


def strict_decoder(wired: Wired, *, coupled: bool, num_spec_tokens: int = 8) -> Decoder:
    policy = Strict(coupled=coupled)
    assert isinstance(wired.decoder.drafter, ModelDrafter)
    drafter = evolve(wired.decoder.drafter, policy=policy, num_spec_tokens=num_spec_tokens)
    return evolve(wired.decoder, policy=policy, drafter=drafter)


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
    decoder = strict_decoder(wired, coupled=coupled, num_spec_tokens=num_spec_tokens)
    # Each of the sixteen combinations takes a quarter of the requests; each of them meets four.
    share = slice((2 * num_spec_tokens + coupled) % NUM_SHARES, None, NUM_SHARES)
    results = decoder.generate(requests[share])
    assert len(results) >= len(requests) // NUM_SHARES
    assert [one.token_ids for one in results] == [one.token_ids for one in plain[share]]


def test_a_request_gets_what_it_would_get_alone(
    wired: Wired, requests: list[GenerationRequest]
) -> None:
    decoder = strict_decoder(wired, coupled=True)
    wanted = [
        evolve(request, num_spec_tokens=index % 6, max_tokens=6 + index % 7)
        for index, request in enumerate(requests[1::3])
    ]
    engine = Engine.of(decoder, Limits(num_slots=3, max_len=64, prefill_tokens=8))
    alone = [decoder.generate([request])[0].token_ids for request in wanted]
    assert [one.token_ids for one in engine.generate(wanted)] == alone
