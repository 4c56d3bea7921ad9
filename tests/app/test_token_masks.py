"""Masks of tokens in decoder and engine, those of grammars among them."""

import json
import re
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from acceptor.app.engine.capture import Record
from acceptor.app.request import FinishReason, GenerationRequest
from acceptor.app.token_masks import NewTokenMasks, StepMasks, fill_masks
from acceptor.core import Block, InvalidInputError, Probabilistic, Status, pack_allowed
from kit.toy_pair import VOCAB_SIZE, Pair, engine_with, record
from kit.toy_requests import ByLast, Failing, ask
from lab.proof.schemas import LOSSLESS, SCHEMA, is_valid, schema_row

needs_xgrammar = pytest.mark.skipif(find_spec("xgrammar") is None, reason="needs xgrammar")
Acceptor = Callable[..., tuple[int | str, str, str]]
VALID = '{"name": "Romeo", "rank": 9, "colours": ["red"], "old": false}'
PROMPT = ("generate", "--prompt", "My number is", "--seed", 3, "--json")


@needs_xgrammar
@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSLESS)
def test_no_output_is_invalid_and_strict_ones_are_those_of_plain_decoding(policy: str) -> None:
    row = schema_row(policy, 8)
    assert row["outputs"] == 8
    assert not row["invalid"]
    assert not row.get("unlike_plain")


@pytest.mark.parametrize("text", ["", "1", '{"name": "Romeo"}', VALID.replace("9", "-1")])
def test_the_schema_s_judge_tells_wrong_outputs(text: str) -> None:
    assert is_valid(VALID)
    assert not is_valid(text)


@needs_xgrammar
def test_flags_choose_a_grammar(acceptor: Acceptor, tmp_path: Path) -> None:
    code, out, _ = acceptor(*PROMPT, "--regex", "[0-9]{3}-[0-9]{4}")
    assert code == 0
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", json.loads(out)["text"])
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA), encoding="utf-8")
    code, out, _ = acceptor(*PROMPT, "--json-schema", file)
    assert code == 0
    assert is_valid(json.loads(out)["text"])


@needs_xgrammar
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--regex", "[0-9"), "--regex: expected what xgrammar reads, got .*Unclosed"),
        (
            ("--json-schema", "/no/such/place"),
            "/no/such/place: expected a UTF-8 text file, got No such file or directory",
        ),
        (("--regex", "\udcff"), "--regex: expected what xgrammar reads, got .*surrogates"),
        (("--json-schema", "\0"), r"\\x00: expected a UTF-8 text file, got embedded null byte"),
        (("--json-schema", __file__), "--json-schema: expected JSON, got Extra data: line 1 "),
        (("--regex", "a", "--ignore-eos"), "--ignore-eos: expected false with a grammar"),
        (("--regex", "a", "--json-schema", "b"), "--regex: expected none beside a json_schema"),
    ],
)
def test_a_grammar_that_is_none_is_refused(
    complaint: Callable[..., str], flags: tuple[str, ...], message: str
) -> None:
    assert re.search(message, complaint(*PROMPT, *flags))


def asking(*new_masks: NewTokenMasks | None) -> list[GenerationRequest]:
    return [
        ask(seed + 1, 2, seed=seed, max_tokens=20, temperature=1.3, new_masks=new)
        for seed, new in enumerate(new_masks)
    ]


def test_a_dead_end_is_told_and_what_came_before_stands(pair: Pair) -> None:
    decoder = pair.decoder(Probabilistic(), 4)
    dead, alive = decoder.generate(asking(partial(ByLast, dead_end=4), ByLast))
    assert (dead.finish_reason, dead.status) == (FinishReason.ERROR, Status.NOTHING_ALLOWED)
    assert dead.token_ids.index(4) == len(dead.token_ids) - 1
    assert len(alive.token_ids) == 20


@pytest.mark.parametrize("recorded", [record, None])
@pytest.mark.parametrize("place", ["new_masks", "fill", "accept"])
@pytest.mark.parametrize(
    "error", [ValueError("not\nso"), RuntimeError("out of memory"), GeneratorExit("away")]
)
def test_masks_that_fail_end_their_request_and_nobody_elses(
    pair: Pair, recorded: Record | None, place: str, error: BaseException
) -> None:
    decoder, requests = pair.decoder(Block(), 3), asking(Failing(place, error), ByLast, None)
    failed, *others = engine_with(decoder, recorded).generate(requests)
    assert (failed.finish_reason, failed.status) == (FinishReason.ERROR, Status.NOTHING_ALLOWED)
    assert failed.error.startswith(
        f"new_masks: expected masks of each step, got {type(error).__name__}: "
    )
    assert "\n" not in failed.error
    assert bool(failed.token_ids) == (place == "accept")
    alone = [decoder.generate([request])[0].token_ids for request in requests[1:]]
    assert [result.token_ids for result in others] == alone


def test_a_draft_that_ends_early_needs_no_masks_behind_it() -> None:
    masks = fill_masks([None, ByLast()], [[5, 6], [1, -1]], VOCAB_SIZE)
    assert masks.allowed_rows.tolist() == [-1, -1, -1, 0, 1, 2]
    kept = pack_allowed(torch.stack([ByLast().allowed(last) for last in (0, 1)]))
    assert torch.equal(masks.allowed_tokens[:2], kept)


def test_rows_left_over_from_a_larger_step_allow_all() -> None:
    allowed = torch.eye(3, VOCAB_SIZE).bool()
    kept = StepMasks.empty(4, VOCAB_SIZE, torch.device("cpu"))
    for num_rows in (3, 1):
        kept.load(StepMasks.of_each_row(allowed[:num_rows]))
    assert kept.allowed_rows.tolist() == [0, -1, -1, -1]
    assert torch.equal(kept.allowed_tokens[0], pack_allowed(allowed)[0])


def test_masks_are_made_for_each_output() -> None:
    with pytest.raises(InvalidInputError, match=r"^new_masks: expected a function, got "):
        ask(1, new_masks=ByLast())
