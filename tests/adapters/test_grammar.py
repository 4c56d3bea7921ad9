"""A grammar's masks of a step equal those of single tokens, and do not change its state."""

import json
import re
from typing import Any

import pytest
import torch

from acceptor.adapters.grammar import GrammarMasks, Grammars
from acceptor.adapters.tokenizer import Tokenizer
from acceptor.app.bundled import bundled_pair
from acceptor.core import InvalidInputError, UnavailableError
from acceptor.core.allowed_tokens import num_mask_words, unpack_allowed

pytest.importorskip("xgrammar")

TOKENIZER = Tokenizer.load(bundled_pair()[0])
VOCAB_SIZE = len(TOKENIZER.vocabulary)
(END,) = TOKENIZER.eos_token_ids


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars.of(TOKENIZER, VOCAB_SIZE, {END})


def filled(masks: GrammarMasks, *draft: int) -> torch.Tensor:
    words = torch.zeros(len(draft) + 1, num_mask_words(VOCAB_SIZE), dtype=torch.int32)
    words.fill_(-1)
    masks.fill(words, draft)
    return unpack_allowed(words, None, 0, len(words), VOCAB_SIZE)


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def test_a_draft_is_followed_and_rolled_back(grammars: Grammars) -> None:
    new_masks, draft = grammars.regex("(ab|cd) x*"), [*ids_of("ab"), *ids_of(" x"), END]
    masks, one_by_one = new_masks(), new_masks()
    together = filled(masks, *draft)
    for row, token_id in enumerate(draft):
        assert torch.equal(together[row], filled(one_by_one)[0])
        assert together[row, token_id]
        one_by_one.accept(token_id)
    # Masks after the end do not matter.
    assert together[-1].all()
    assert torch.equal(filled(masks, *draft), together)
    masks.accept(draft[0])
    assert torch.equal(filled(masks)[0], together[1])


def test_a_draft_ends_for_it_where_it_is_forbidden(grammars: Grammars) -> None:
    masks, (b,) = grammars.regex("ab*")(), ids_of("b")
    first, behind, further = filled(masks, b, b)
    assert not first[b]
    assert behind.all()
    assert further.all()
    with pytest.raises(InvalidInputError, match=rf"^token: .* the grammar allows, got {b}$"):
        masks.accept(b)


def test_the_end_comes_where_the_grammar_is_complete(grammars: Grammars) -> None:
    masks = grammars.json_schema('{"enum": ["a"]}')()
    for token_id in ids_of('"a"'):
        assert not filled(masks)[0, END]
        masks.accept(token_id)
    (allowed,) = filled(masks)
    assert allowed.nonzero().flatten().tolist() == [END]


def test_no_control_character_gets_into_a_string(grammars: Grammars) -> None:
    masks = grammars.json_schema('{"type": "string", "maxLength": 4}')()
    masks.accept(*ids_of('"'))
    (allowed,) = filled(masks)
    texts = [TOKENIZER.decode([token]) for token in allowed.nonzero().flatten().tolist()]
    assert len(texts) > 100
    assert not any(character < " " for text in texts for character in text)


def test_without_an_end_or_without_xgrammar_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match=r"^grammar: expected a target with an end"):
        Grammars.of(TOKENIZER, VOCAB_SIZE, ())
    monkeypatch.setattr("acceptor.adapters.grammar.find_spec", lambda _: None)
    with pytest.raises(UnavailableError, match=r"pip install 'acceptor\[grammar\]'"):
        Grammars.of(TOKENIZER, VOCAB_SIZE, {END})


INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "array", "items": {"type": "integer", "not": {"const": 3}}}, "not"),
        ({"type": "array", "items": INTEGER, "uniqueItems": True}, "uniqueItems"),
        ({"properties": {"a": {"if": {"const": 1}, "then": INTEGER}}}, "if"),
        ({"$ref": "http://x/y"}, "$ref to http://x/y"),
        ({"$ref": "#/$defs/a", "$defs": {"a": INTEGER}, "minimum": 5}, "minimum beside $ref"),
        ({"anyOf": [INTEGER], "properties": {"a": INTEGER}}, "properties beside anyOf"),
        ({"allOf": [INTEGER, {"type": "number"}]}, "allOf of several"),
        ({"type": "string", "pattern": "a*", "maxLength": 3}, "a length beside pattern"),
        ({"minimum": 5}, "minimum without type"),
        ({"type": "string", "enum": ["a", 1]}, "type beside enum"),
        ({"type": "integer", "const": True}, "type beside const"),
        ({"type": "integer", "anyOf": [INTEGER, {"const": 1.5}]}, "type beside anyOf"),
        ({"type": "object", "$ref": "#"}, "type beside $ref"),
        ({"type": "object", "required": ["a\n"]}, r"required 'a\n' without its property"),
        (
            {"properties": {"a": INTEGER}, "required": ["a", "b"]},
            "required 'b' without its property",
        ),
    ],
)
def test_what_is_ignored_is_refused(grammars: Grammars, schema: dict[str, Any], said: str) -> None:
    message = f"^json_schema: expected what xgrammar heeds, got {re.escape(said)}$"
    with pytest.raises(InvalidInputError, match=message):
        grammars.json_schema(json.dumps(schema))


def test_names_and_values_are_no_keywords(grammars: Grammars) -> None:
    schema = {"properties": {"not": INTEGER, "if": {"enum": [{"not": 1}], "default": {"if": 1}}}}
    grammars.json_schema(json.dumps({**schema, "$defs": {"then": {"$ref": "#"}}}))


@pytest.mark.parametrize(
    "schema",
    [
        "[" * 100_000,
        '{"allOf": 3}',
        '{"properties": {}, "required": 1}',
        '{"type": "object", "required": [{}]}',
        {"type": "object"},
    ],
)
def test_what_is_no_schema_is_refused(grammars: Grammars, schema: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"^json_schema: .* (JSON|what xgrammar reads), got \S"
    ):
        grammars.json_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["number", "null"], "enum": [1, 1.5, None]},
        {"type": "object", "anyOf": [{"type": "object"}, {"const": {}}]},
        {"properties": {"a": INTEGER, "b": INTEGER}, "required": ["b"]},
    ],
)
def test_a_type_that_agrees_and_required_properties_are_heeded(
    grammars: Grammars, schema: dict[str, Any]
) -> None:
    grammars.json_schema(json.dumps(schema))


@pytest.mark.parametrize("pattern", ["(?=a)b", "a(?!b)c", r"\\(?<=a)b", "(?<!a)b"])
def test_a_look_around_is_refused(grammars: Grammars, pattern: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^regex: expected what xgrammar heeds, got \(\?"):
        grammars.regex(pattern)


def test_other_groups_are_no_look_around(grammars: Grammars) -> None:
    grammars.regex(r"\(?=(?:a)")
