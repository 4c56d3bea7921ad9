"""Grammars on the bundled pair: outputs are valid under every lossless policy, by flags, too."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.schema_outputs import LOSSLESS, SCHEMA, is_valid, outcome_of

pytest.importorskip("xgrammar")

Acceptor = Callable[..., tuple[int | str, str, str]]
PROMPT = ("generate", "--prompt", "My number is", "--seed", 3, "--json")


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSLESS)
def test_no_output_is_invalid_and_strict_ones_are_those_of_plain_decoding(policy: str) -> None:
    found = outcome_of(policy, 8, compare=policy.startswith("strict"))
    assert (found.num_invalid, found.num_changed) == (0, 0)


def test_what_is_no_object_of_the_schema_is_told() -> None:
    good = {"name": "Ann", "rank": 7, "colours": ["red"], "old": True}
    assert is_valid(json.dumps(good))
    bad = {"name": "a" * 9, "rank": 100, "colours": ["grey"], "old": 1}
    assert not any(is_valid(json.dumps(good | {key: value})) for key, value in bad.items())
    assert not is_valid("[]")


def test_flags_choose_a_grammar(acceptor: Acceptor, tmp_path: Path) -> None:
    code, out, _ = acceptor(*PROMPT, "--regex", "[0-9]{3}-[0-9]{4}")
    assert code == 0
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", json.loads(out)["text"])
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA), encoding="utf-8")
    code, out, _ = acceptor(*PROMPT, "--json-schema", file)
    assert code == 0
    assert is_valid(json.loads(out)["text"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--regex", "[0-9"), "regex: expected what xgrammar reads, got .*Unclosed"),
        (
            ("--json-schema", "/nowhere"),
            "/nowhere: expected a UTF-8 text file, got No such file or directory",
        ),
        (("--json-schema", __file__), "json_schema: expected what xgrammar reads, got "),
        (("--regex", "a", "--ignore-eos"), "--ignore-eos: expected false with a grammar"),
        (("--regex", "a", "--json-schema", "b"), "--regex: expected none beside a json_schema"),
    ],
)
def test_a_grammar_that_is_none_is_refused(
    acceptor: Acceptor, flags: tuple[str, ...], message: str
) -> None:
    code, _, said = acceptor(*PROMPT, *flags)
    assert code == 2
    assert re.search(f"^acceptor: .*{message}", said)
