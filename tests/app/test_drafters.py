"""Drafters: without a second model, from a config, and with other vocabularies."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acceptor.app.bundled import bundled_pair
from acceptor.app.config import Config, DrafterConfig, EngineConfig, ModelsConfig
from acceptor.app.decode import DecodeStep
from acceptor.app.decoder import Decoder
from acceptor.app.drafter import NgramDrafter, NoDrafter, TextIndex
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.head_drafter import HeadDrafter
from acceptor.app.model_drafter import DraftVocabulary, ModelDrafter, shared_target_ids
from acceptor.app.wiring import wire, wire_engine
from acceptor.core import (
    AcceptorError,
    Block,
    CheckpointError,
    ConfigError,
    InvalidInputError,
    Policy,
    SamplingParams,
    Scores,
    Strict,
)
from kit.checkpoints import edit_tensors, keep_ids
from kit.draft_heads import eagle3
from kit.toy_pair import VOCAB_SIZE, Pair, TableModel, engine_with, random_table, record, with_draft
from kit.toy_requests import ask


@given(text=st.lists(st.integers(0, 3), min_size=1, max_size=24), least=st.integers(1, 3))
def test_drafts_are_what_followed_the_latest_longest_match(text: list[int], least: int) -> None:
    sizes, num = range(3, least - 1, -1), len(text)
    index = TextIndex(sizes)
    # It grows token by token, and all at once.
    for length in range(1, num):
        index.follow(text[:length], 2)
    followed = (
        text[start + size : start + size + 2]
        for size in sizes
        for start in reversed(range(num - size))
        if text[start : start + size] == text[num - size :]
    )
    assert [*index.follow(text, 2)] == [*TextIndex(sizes).follow(text, 2)] == next(followed, [])


def test_the_shortest_match_is_no_longer_than_the_longest() -> None:
    with pytest.raises(InvalidInputError, match="min_ngram"):
        NgramDrafter(num_spec_tokens=2, max_ngram=2, min_ngram=3)


PROMPTS: dict[str, dict[str, Any]] = {
    "To be or not to be, to be or not": {},
    "ROMEO:\n": {"temperature": 0.7, "top_p": 0.9},
    "It was": {"temperature": 0.0, "repetition_penalty": 1.2},
}
EARLY = DrafterConfig(name="early-exit", num_layers=20)
"""All layers of the bundled target. Drafting one token and scoring several differ in the last bits:
coupled, a near-tie aside, every draft is the target's own choice."""


@pytest.mark.parametrize(
    "config",
    [
        Config(policy=Strict(), drafter=DrafterConfig(name="model")),
        Config(policy=Strict(), drafter=DrafterConfig(name="eagle3")),
        Config(policy=Strict(), drafter=DrafterConfig(name="ngram")),
        Config(policy=Strict(), drafter=DrafterConfig(name="early-exit")),
        Config(policy=Strict(coupled=True), drafter=EARLY),
    ],
    ids=["model", "eagle3", "ngram", "early exit", "all layers"],
)
def test_strict_tokens_do_not_depend_on_the_drafter(config: Config) -> None:
    wired = wire(config)
    requests = [
        ask(*wired.tokenizer.encode(prompt), seed=3, max_tokens=16, ignore_eos=True, **recipe)
        for prompt, recipe in PROMPTS.items()
    ]
    results = wired.decoder.generate(requests)
    plain = evolve(wired.decoder, drafter=NoDrafter()).generate(requests)
    assert [one.token_ids for one in results] == [one.token_ids for one in plain]
    figures = results[0].statistics
    assert figures.num_drafts > 0
    assert config.drafter is not EARLY or figures.acceptance_rate == 1


def test_coupled_drafting_keeps_no_draft_logits() -> None:
    for policy, keeps in ((Strict(coupled=True), False), (Config().policy, True)):
        drafter = wire(Config(policy=policy)).decoder.drafter
        assert isinstance(drafter, ModelDrafter)
        assert (drafter.new_memory(2, 8).logits is not None) == keeps


def test_a_target_of_ones_own_can_draft_by_itself() -> None:
    target, _ = bundled_pair()
    alone = evolve(Config().models, target=str(target))
    for name, kind in (("ngram", NgramDrafter), ("early-exit", ModelDrafter), (None, NoDrafter)):
        config = Config(models=alone, drafter=DrafterConfig(name=name))
        assert isinstance(wire(config).decoder.drafter, kind)
    with pytest.raises(ConfigError, match="expected ngram or early-exit, or --draft beside it"):
        wire(Config(models=alone, drafter=DrafterConfig(name="model")))


SIZES: dict[str, Any] = {"hidden_size": 160, "vocab_size": 4096}


@pytest.mark.parametrize("pickled", [False, True])
def test_a_heads_files_say_that_it_is_one(tmp_path: Path, pickled: bool) -> None:
    eagle3(target_size=160, draft_vocab_size=300, **SIZES).save(tmp_path, pickled=pickled)
    models = ModelsConfig(target=str(bundled_pair()[0]), draft=str(tmp_path))
    wired = wire(Config(policy=Strict(), models=models))
    assert isinstance(wired.decoder.drafter, HeadDrafter)
    assert wired.decoder.drafter.taps == (2, 10, 17)
    requests = [ask(7, seed=3, max_tokens=6), ask(*range(9), seed=4, max_tokens=6)]
    plain = evolve(wired.decoder, drafter=NoDrafter()).generate(requests)
    assert [one.token_ids for one in wired.decoder.generate(requests)] == [
        one.token_ids for one in plain
    ]
    for name in ("model", "eagle", "mtp"):
        said = f"^drafter: expected eagle3, as {tmp_path} says, got {name}$"
        with pytest.raises(ConfigError, match=said):
            wire(Config(models=models, drafter=DrafterConfig(name=name)))


@pytest.mark.parametrize(
    ("name", "said"), [("eagle", "expected eagle3, as "), ("mtp", "adapter transformers")]
)
def test_the_bundled_target_has_no_other_head(name: str, said: str) -> None:
    with pytest.raises(AcceptorError, match=said):
        wire(Config(drafter=DrafterConfig(name=name)))


def test_an_engine_from_a_config_takes_texts() -> None:
    engine = wire_engine(Config(engine=EngineConfig(num_slots=2, max_len=64)))
    first, second, long = engine.generate(
        ["ROMEO:", "JULIET:", "word " * 99], SamplingParams(seed=1), max_tokens=4, ignore_eos=True
    )
    assert (len(first.token_ids), len(second.token_ids)) == (4, 4)
    assert first.text
    assert "expected fewer than the 64 tokens" in long.error


SHARED = {0: 11, 1: 3, 3: 0, 4: 7, 5: 12, 6: 5, 8: 1}
"""Draft id -> target id; 2 and 7 are the draft model's own."""


def mapped_decoder(pair: Pair, policy: Policy, num_spec_tokens: int = 3) -> Decoder:
    vocabulary = DraftVocabulary.of(SHARED, VOCAB_SIZE, unknown_id=2)
    draft = TableModel(random_table(7, vocab_size=9))
    return with_draft(pair.decoder(policy, 0), draft, num_spec_tokens, vocabulary)


@pytest.mark.parametrize("runner", [EagerRunner, partial(GraphRunner, record=record)])
@pytest.mark.parametrize("policy", [Strict(coupled=True), Block()])
def test_an_engine_decodes_with_another_vocabulary(
    pair: Pair, policy: Policy, runner: Callable[[DecodeStep], Runner]
) -> None:
    requests = [ask(seed, 2, 12, seed=seed, max_tokens=16) for seed in range(4)]
    decoder = mapped_decoder(pair, policy)
    results = engine_with(evolve(decoder, new_runner=runner), num_slots=2).generate(requests)
    assert results == [decoder.generate([request])[0] for request in requests]
    assert sum(result.statistics.num_accepted_tokens for result in results) > 3
    if isinstance(policy, Strict):
        plain = pair.decoder(policy, 0).generate(requests)
        assert [one.token_ids for one in results] == [one.token_ids for one in plain]


def test_a_draft_model_reads_its_own_ids_and_drafts_the_targets(pair: Pair) -> None:
    """If the draft model is the target with renumbered tokens, it drafts the target's tokens."""
    order = torch.randperm(VOCAB_SIZE, generator=torch.Generator().manual_seed(3))
    ids = dict(enumerate(order.tolist()))
    renumbered = Renumbered(table=pair.target.table, order=order)
    decoder = pair.decoder(Strict(coupled=True), 4)
    assert isinstance(decoder.drafter, ModelDrafter)
    drafter = evolve(
        decoder.drafter, model=renumbered, vocabulary=DraftVocabulary.of(ids, VOCAB_SIZE)
    )
    (result,) = evolve(decoder, drafter=drafter).generate([ask(5, 1, seed=2)])
    assert result.statistics.acceptance_rate == 1


@frozen(eq=False, kw_only=True)
class Renumbered(TableModel):
    """A model whose id i is another model's id order[i]."""

    order: Tensor

    def forward(self, token_ids: Tensor, *args: Any, **options: Any) -> Scores:
        scores = super().forward(self.order[token_ids], *args, **options)
        return Scores(scores.logits[..., self.order])


def test_tokens_are_shared_by_their_spelling() -> None:
    draft = {"a": 0, "b": 1, "own": 2, "c": 3}
    assert shared_target_ids(draft, {"c": 5, "b": 0, "a": 9, "more": 1}) == {0: 9, 1: 0, 3: 5}


@pytest.mark.parametrize("ids", [{}, {0: 3, 1: 3}, {0: 13}, {0: -1}])
def test_ids_that_name_no_token_of_the_target_are_refused(ids: dict[int, int]) -> None:
    with pytest.raises(InvalidInputError, match="target_ids"):
        DraftVocabulary.of(ids, VOCAB_SIZE)


KEPT = [token_id for token_id in range(4095, -1, -1) if token_id < 300 or token_id % 7]
OFFSETS = torch.tensor(KEPT) - torch.arange(len(KEPT))


@pytest.fixture
def smaller_draft(tmp_path: Path) -> Path:
    """The bundled draft without every seventh token, its ids in reverse order."""
    draft = Path(shutil.copytree(bundled_pair()[1], tmp_path / "draft"))
    tokenizer = json.loads((draft / "tokenizer.json").read_text())
    new_ids = {old: new for new, old in enumerate(KEPT)}
    vocabulary, model = tokenizer["model"]["vocab"], tokenizer["model"]
    model["vocab"] = {text: new_ids[old] for text, old in vocabulary.items() if old in new_ids}
    merged = (pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"])
    known = model["vocab"].keys()
    model["merges"] = [pair for pair in merged if {*pair, "".join(pair)} <= known]
    for token in tokenizer["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
    keep_ids(draft, KEPT)
    return draft


@pytest.mark.parametrize(
    "offsets", [torch.zeros(7, dtype=torch.int64), torch.zeros(len(KEPT)), OFFSETS + 2]
)
def test_ids_that_a_checkpoint_misstates_are_refused(smaller_draft: Path, offsets: Tensor) -> None:
    edit_tensors(smaller_draft, lambda tensors: tensors.update(d2t=offsets))
    models = ModelsConfig(target=str(bundled_pair()[0]), draft=str(smaller_draft))
    with pytest.raises(CheckpointError, match=r"model.safetensors: d2t: (offsets|target_ids): exp"):
        wire(Config(models=models))


@pytest.mark.parametrize("named_by", ["tokenizer", "d2t"])
def test_generate_works_on_such_a_pair(
    smaller_draft: Path, acceptor: Callable[..., tuple[int | str, str, str]], named_by: str
) -> None:
    if named_by == "d2t":
        edit_tensors(smaller_draft, lambda tensors: tensors.update(d2t=OFFSETS))
        (smaller_draft / "tokenizer.json").unlink()
    pair = ["--target", str(bundled_pair()[0]), "--draft", str(smaller_draft)]
    arguments = ["generate", "--prompt", "ROMEO:", "--max-tokens", "24", "--seed", "7", "--json"]
    answers = []
    for more in (["strict"], ["strict", "--num-spec-tokens", "0"], ["probabilistic"]):
        code, out, _ = acceptor(*arguments, *pair, "--policy", *more)
        assert code == 0
        answers.append(json.loads(out))
    strict, plain, probabilistic = answers
    assert strict["token_ids"] == plain["token_ids"]
    assert probabilistic["stats"]["acceptance_rate"] > 0.2
