"""The law of what the application decodes with a draft head, enumerated through its own loop."""

import json
from pathlib import Path
from typing import Any

import pytest

from acceptor.adapters.draft_heads.loader import load_head
from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.random_weights import random_model
from acceptor.app.decoder import Decoder
from acceptor.app.head_drafter import HeadDrafter
from acceptor.backends import load_sampler
from acceptor.core import Block, Policy, Probabilistic, Recipe, SamplingParams
from kit.draft_heads import TAPS, eagle3
from kit.law_of_decoder import error_of
from kit.toy_pair import Letters

SMALL: dict[str, Any] = {
    "vocab_size": 3,
    "hidden_size": 4,
    "intermediate_size": 4,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 4,
}
TARGET = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
PARAMS = SamplingParams(seed=5, temperature=1.3, draft=Recipe(temperature=0.6))
ROUNDING = 1e-5
"""Of float32 forwards, whose chunks are not the oracle's."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> TransformerModel:
    file = tmp_path_factory.mktemp("target") / "config.json"
    file.write_text(json.dumps(SMALL | TARGET | {"max_position_embeddings": 32}))
    model = random_model(file)
    # So small as they are made, they would say nearly the same of everything.
    for weight in (model.decoder.embedding, model.decoder.lm_head.weight):
        weight.mul_(50)
    return model


def decoder(target: TransformerModel, folder: Path, policy: Policy) -> Decoder:
    """Its head has two of the target's three tokens."""
    files = eagle3(
        target_size=4, num_taps=2, draft_vocab_size=2, eagle_config={TAPS: [0, 1]}, **SMALL
    )
    sampler = load_sampler("reference")
    drafter = HeadDrafter(
        head=load_head(files.save(folder), "eagle3", target),
        target_vocab_size=3,
        sampler=sampler,
        policy=policy,
        num_spec_tokens=2,
    )
    return Decoder(
        target=target,
        drafter=drafter,
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=Letters,
    )


@pytest.mark.parametrize("policy", [Probabilistic(), Block()], ids=lambda policy: policy.name)
def test_decoding_with_a_head_is_exact(
    target: TransformerModel, tmp_path: Path, policy: Policy
) -> None:
    assert error_of(decoder(target, tmp_path, policy), PARAMS, 3) <= ROUNDING
