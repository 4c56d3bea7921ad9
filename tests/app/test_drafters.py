"""Drafts without a second model, and how a config chooses where drafts come from."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from acceptor.app.bundled import bundled_pair
from acceptor.app.config import Config, DrafterConfig, EngineConfig, ModelsConfig
from acceptor.app.drafter import NoDrafter
from acceptor.app.head_drafter import HeadDrafter
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.ngram_drafter import NgramDrafter, TextIndex
from acceptor.app.wiring import wire, wire_engine
from acceptor.core import AcceptorError, ConfigError, InvalidInputError, SamplingParams, Strict
from kit.draft_heads import eagle3
from kit.toy_requests import ask


@given(text=st.lists(st.integers(0, 3), min_size=1, max_size=24), least=st.integers(1, 3))
def test_drafts_are_what_followed_the_latest_of_the_longest_matches(
    text: list[int], least: int
) -> None:
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
    with pytest.raises(ConfigError, match="expected ngram or early-exit without a draft model"):
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
