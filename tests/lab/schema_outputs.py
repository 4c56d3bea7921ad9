"""How many outputs of a JSON schema are invalid on the bundled pair, and what drafts change.

Run from the repository's root, this takes some minutes:

    PYTHONPATH=tests python -m lab.schema_outputs --outputs 1000
"""

import json
import sys
from typing import Any

import click
from attrs import evolve, frozen

from acceptor.app.bench.builtin_prompts import PLAYS, PROSE
from acceptor.app.config import Config, DecodingConfig
from acceptor.app.drafter import NoDrafter
from acceptor.app.request import FinishReason, GenerationRequest, GenerationResult
from acceptor.app.wiring import wire
from acceptor.core.policies import POLICIES
from acceptor.core.sampling_params import SamplingParams

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
LOSSLESS = tuple(name for name, policy in POLICIES.items() if policy.lossless)
BATCH = 50


def is_valid(text: str) -> bool:
    """Whether a text is an object of `SCHEMA`, checked by hand."""
    try:
        value = json.loads(text)
        name, rank, colours, old = (value.pop(key) for key in SCHEMA["properties"])
    except (ValueError, KeyError, AttributeError, TypeError):
        return False
    return (
        value == {}
        and isinstance(name, str)
        and len(name) <= 8
        and type(rank) is int
        and 0 <= rank <= 99
        and isinstance(colours, list)
        and len(colours) <= 2
        and set(colours) <= {"red", "blue"}
        and isinstance(old, bool)
    )


@frozen
class Outcome:
    """Of one policy.

    Attributes:
        num_outputs: how many were made.
        num_invalid: how many are no JSON of the schema, or did not end.
        num_changed: how many differ from masked plain decoding, where they must not.
        acceptance_length: tokens per draft.
    """

    num_outputs: int
    num_invalid: int
    num_changed: int
    acceptance_length: float


def outcome_of(name: str, num_outputs: int, *, compare: bool) -> Outcome:
    """Make so many outputs under a policy, with seeds and prompts of their own."""
    config = Config(policy=POLICIES[name], decoding=DecodingConfig(num_spec_tokens=3))
    wired = wire(config)
    decoder = wired.decoder
    new_masks = wired.grammars().json_schema(json.dumps(SCHEMA))
    prompts = [wired.tokenizer.encode(prompt) for prompt in (*PLAYS, *PROSE)]
    requests = [
        GenerationRequest(
            prompt_token_ids=prompts[seed % len(prompts)],
            params=SamplingParams(seed=seed, temperature=(0.0, 0.7, 1.0, 1.3)[seed % 4]),
            max_tokens=100,
            new_masks=new_masks,
        )
        for seed in range(num_outputs)
    ]
    results: list[GenerationResult] = []
    num_changed = 0
    for first in range(0, num_outputs, BATCH):
        results += decoder.generate(requests[first : first + BATCH])
        if compare:
            plain = evolve(decoder, drafter=NoDrafter()).generate(requests[first : first + BATCH])
            pairs = zip(results[first:], plain, strict=True)
            num_changed += sum(one.token_ids != other.token_ids for one, other in pairs)
    ended = [each for each in results if each.finish_reason is FinishReason.STOP]
    num_valid = sum(is_valid(each.text) for each in ended)
    num_drafts = sum(each.statistics.num_drafts for each in results)
    num_accepted = sum(each.statistics.num_accepted_tokens for each in results)
    return Outcome(num_outputs, num_outputs - num_valid, num_changed, 1 + num_accepted / num_drafts)


@click.command()
@click.option("--outputs", default=1000, show_default=True)
def main(outputs: int) -> None:
    """Print a line for each lossless policy; fails if an output is invalid or changed."""
    wrong = 0
    for name in LOSSLESS:
        found = outcome_of(name, outputs, compare=name.startswith("strict"))
        click.echo(f"{name}: {found}")
        wrong += found.num_invalid + found.num_changed
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
