"""Outputs of the bundled pair under a JSON schema: valid, and under strict policies equal to plain.

The target has read plays, so every brace comes from the schema.
"""

import json
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from acceptor.app.bench.requests import BUILT_IN, read_questions
from acceptor.app.config import Config, DecodingConfig
from acceptor.app.decoder import Decoder
from acceptor.app.drafter import NoDrafter
from acceptor.app.request import FinishReason, GenerationRequest, GenerationResult
from acceptor.app.wiring import wire
from acceptor.core import POLICIES, SamplingParams

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "rank": {"type": "integer", "minimum": 0, "maximum": 99},
        "colours": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
        "old": {"type": "boolean"},
    },
    "required": ["name", "rank", "colours", "old"],
    "additionalProperties": False,
}
TEMPERATURES = (0.0, 0.7, 1.0, 1.3)
AT_A_TIME = 50
LOSSLESS = [name for name, policy in POLICIES.items() if policy.lossless]


def is_valid(text: str) -> bool:
    """Whether a text is an object of `SCHEMA`, checked without a library."""
    try:
        value = json.loads(text)
        types = {name: type(one) for name, one in value.items()}
    except (ValueError, AttributeError):
        return False
    return (
        types == {"name": str, "rank": int, "colours": list, "old": bool}
        and len(value["name"]) <= 8
        and 0 <= value["rank"] <= 99
        and len(value["colours"]) <= 2
        and {*value["colours"]} <= {"red", "blue"}
    )


def schema_row(policy: str, num_outputs: int) -> dict[str, Any]:
    """How many outputs are invalid, and how many of a strict policy differ from plain decoding."""
    config = Config(policy=POLICIES[policy], decoding=DecodingConfig(num_spec_tokens=3))
    wired = wire(config)
    new_masks = wired.grammars().json_schema(json.dumps(SCHEMA))
    plays = [text for kind, text in read_questions(BUILT_IN) if kind == "plays"]
    requests = [
        GenerationRequest(
            prompt_token_ids=wired.tokenizer.encode(plays[seed % len(plays)]),
            params=SamplingParams(seed=seed, temperature=TEMPERATURES[seed % len(TEMPERATURES)]),
            max_tokens=100,
            new_masks=new_masks,
        )
        for seed in range(num_outputs)
    ]
    found = _decoded(wired.decoder, requests)
    stopped = [one.finish_reason is FinishReason.STOP and is_valid(one.text) for one in found]
    row = {"policy": policy, "outputs": len(found), "invalid": stopped.count(False)}
    if policy.startswith("strict"):
        plain = _decoded(evolve(wired.decoder, drafter=NoDrafter()), requests)
        equal = [one.token_ids == other.token_ids for one, other in zip(found, plain, strict=True)]
        row["unlike_plain"] = equal.count(False)
    return row


def _decoded(decoder: Decoder, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
    return [
        result
        for first in range(0, len(requests), AT_A_TIME)
        for result in decoder.generate(requests[first : first + AT_A_TIME])
    ]
