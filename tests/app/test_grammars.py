"""Grammars on the bundled pair: outputs are valid under every lossless policy, by flags, too."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from acceptor.app.bench.prompts import PLAYS
from acceptor.app.config import Config, DecodingConfig
from acceptor.app.drafter import NoDrafter
from acceptor.app.request import FinishReason
from acceptor.app.wiring import wire
from acceptor.core import POLICIES
from kit.toy_requests import ask

pytest.importorskip("xgrammar")

Acceptor = Callable[..., tuple[int | str, str, str]]
PROMPT = ("generate", "--prompt", "My number is", "--seed", 3, "--json")
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
LOSSLESS = [name for name, policy in POLICIES.items() if policy.lossless]


def assert_valid(text: str) -> None:
    """Whether a text is an object of `SCHEMA`, by hand."""
    value = json.loads(text)
    assert {name: type(one) for name, one in value.items()} == {
        "name": str, "rank": int, "colours": list, "old": bool
    }  # fmt: skip
    assert len(value["name"]) <= 8
    assert 0 <= value["rank"] <= 99
    assert len(value["colours"]) <= 2
    assert {*value["colours"]} <= {"red", "blue"}


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSLESS)
def test_no_output_is_invalid_and_strict_ones_are_those_of_plain_decoding(policy: str) -> None:
    config = Config(policy=POLICIES[policy], decoding=DecodingConfig(num_spec_tokens=3))
    wired = wire(config)
    new_masks = wired.grammars().json_schema(json.dumps(SCHEMA))
    requests = [
        ask(
            *wired.tokenizer.encode(PLAYS[seed]),
            seed=seed,
            temperature=(0.0, 0.7, 1.0, 1.3)[seed % 4],
            max_tokens=100,
            new_masks=new_masks,
        )
        for seed in range(8)
    ]
    results = wired.decoder.generate(requests)
    for result in results:
        assert result.finish_reason is FinishReason.STOP
        assert_valid(result.text)
    if policy.startswith("strict"):
        plain = evolve(wired.decoder, drafter=NoDrafter()).generate(requests)
        assert [one.token_ids for one in results] == [one.token_ids for one in plain]


def test_flags_choose_a_grammar(acceptor: Acceptor, tmp_path: Path) -> None:
    code, out, _ = acceptor(*PROMPT, "--regex", "[0-9]{3}-[0-9]{4}")
    assert code == 0
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", json.loads(out)["text"])
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA), encoding="utf-8")
    code, out, _ = acceptor(*PROMPT, "--json-schema", file)
    assert code == 0
    assert_valid(json.loads(out)["text"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--regex", "[0-9"), "regex: expected what xgrammar reads, got .*Unclosed"),
        (
            ("--json-schema", "/no/such/place"),
            "/no/such/place: expected a UTF-8 text file, got No such file or directory",
        ),
        (("--regex", "\udcff"), "regex: expected what xgrammar reads, got .*surrogates"),
        (("--json-schema", "\0"), r"\\x00: expected a UTF-8 text file, got embedded null byte"),
        (("--json-schema", __file__), "json_schema: expected what xgrammar reads, got "),
        (("--regex", "a", "--ignore-eos"), "--ignore-eos: expected false with a grammar"),
        (("--regex", "a", "--json-schema", "b"), "--regex: expected none beside a json_schema"),
    ],
)
def test_a_grammar_that_is_none_is_refused(
    complaint: Callable[..., str], flags: tuple[str, ...], message: str
) -> None:
    assert re.search(message, complaint(*PROMPT, *flags))
