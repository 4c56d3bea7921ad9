"""The law of what the application decodes with a head, enumerated through its own loop."""

from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from acceptor.adapters.adapter_choice import load_any_model
from acceptor.adapters.draft_heads.loader import load_head, random_head
from acceptor.app.decoder import Decoder
from acceptor.core import Block, Policy, Probabilistic, Recipe, SamplingParams
from kit.draft_heads import SPECULATORS, TAPS, HeadFiles, eagle, eagle3
from kit.head_decoding import decoder_of
from kit.law_of_decoder import error_of
from kit.small_families import FAMILIES, random_model

SMALL: dict[str, Any] = {"vocab_size": 3, "hidden_size": 8, "num_hidden_layers": 2}
HEAD: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 3}
FEWER: dict[str, Any] = {"draft_vocab_size": 2, "target_size": 8}
"""Heads of two of the target's three tokens."""

PARAMS = SamplingParams(seed=5, temperature=1.3, draft=Recipe(temperature=0.6))
ROUNDING = 1e-5
"""Of float32 forwards, whose chunks are not the oracle's."""


@frozen
class Pair:
    """A family of targets, and the head that drafts for it; None for its own layer."""

    family: str
    head: HeadFiles | None
    kind: str


PAIRS = {
    "llama3-eagle": Pair("llama", eagle(**HEAD), "eagle"),
    "qwen3-eagle3": Pair(
        "qwen3", eagle3(eagle_config={TAPS: [0, 1, 2]}, **FEWER, **HEAD), "eagle3"
    ),
    "gptoss-eagle3": Pair(
        "gpt-oss",
        eagle3(nested={**SPECULATORS, "target_hidden_size": 8, TAPS: [0, 1, 2]}, **FEWER, **HEAD),
        "eagle3",
    ),
    "glm-mtp": Pair("glm4-moe-lite", None, "mtp"),
}


def decoder(pair: Pair, folder: Path, policy: Policy) -> Decoder:
    config = FAMILIES[pair.family]
    fields = config.to_dict() | SMALL | {"num_nextn_predict_layers": 1}
    for name in ("layer_types", "mlp_layer_types"):
        if fields.get(name):
            fields[name] = fields[name][-2:]
    random_model(type(config)(**fields)).save_pretrained(folder)
    target = load_any_model(folder)
    if pair.head is None:
        head = random_head(folder / "config.json", pair.kind, target)
    else:
        head = load_head(pair.head.save(folder / "head"), pair.kind, target)
    return decoder_of(target, head, policy, 2)


@pytest.mark.parametrize("policy", [Probabilistic(), Block()])
@pytest.mark.parametrize("name", PAIRS)
def test_decoding_with_a_head_is_exact(tmp_path: Path, name: str, policy: Policy) -> None:
    assert error_of(decoder(PAIRS[name], tmp_path, policy), PARAMS, 3) <= ROUNDING
