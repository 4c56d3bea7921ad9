"""The law of the application's output with each of its drafters, enumerated in float64."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from acceptor.adapters.draft_heads.loader import load_head, random_head
from acceptor.adapters.loader import load_any_model
from acceptor.app.decoder import Decoder
from acceptor.app.drafter import Drawn, NgramDrafter
from acceptor.app.drawing import ModelMemory
from acceptor.app.frontier import Frontier
from acceptor.app.model_drafter import DraftVocabulary, ModelDrafter
from acceptor.app.request import GenerationRequest
from acceptor.core import Block, Policy, Probabilistic, Recipe, SamplingParams, Strict, Typical
from kit.decode_law import Law, Tokens
from kit.draft_heads import SPECULATORS, TAPS, HeadFiles, eagle, eagle3
from kit.head_decoding import Noting, decoder_of
from kit.hidden_noise import Branch, HiddenNoise, branches, replaced_by
from kit.small_families import FAMILIES, random_model
from kit.toy_pair import Pair, next_logits
from lab.proof.exact import EXACT, Floats, conditional, largest, sequence_law

PROMPT = (1, 0, 1)
PAIR = Pair.make(seed=4, vocab_size=2)
POLICIES = (Strict(coupled=True), Block())
"""The most sensitive policies: to the noise of drafts, and to later positions of a draft."""
PARAMS = SamplingParams(seed=5, temperature=1.3, draft=Recipe(temperature=0.6))
ARGMAX = evolve(PARAMS, draft=Recipe(temperature=0))
PENALTIES = evolve(PARAMS, repetition_penalty=1.7, presence_penalty=0.3, frequency_penalty=0.2)


def emitted_law(decoder: Decoder, params: SamplingParams, num_tokens: int) -> Law:
    """Every way a request can be decoded, with its probability."""
    request = GenerationRequest(prompt_token_ids=PROMPT, params=params, max_tokens=num_tokens)
    noise, law = HiddenNoise(horizon=len(PROMPT) + num_tokens), defaultdict[Tokens, float](float)

    def run(branch: Branch) -> Tokens:
        noise.begin(branch, ())
        return decoder.generate([request])[0].token_ids

    with replaced_by(noise):
        for probability, tokens in branches(run):
            law[tokens] += probability
    return dict(law)


def error_of(decoder: Decoder, params: SamplingParams, num_tokens: int) -> float:
    """The largest of all conditional probabilities, compared with plain sampling's."""
    emitted = emitted_law(decoder, params, num_tokens)

    def model(output: Tokens) -> Floats:
        return next_logits(decoder.target, PROMPT + output).numpy()

    expected = sequence_law(model, params, num_tokens, PROMPT)
    assert sum(emitted.values()) == pytest.approx(1.0)
    return max(
        largest(conditional(emitted, n), conditional(expected, n)) for n in range(1, num_tokens + 1)
    )


def with_own_ids(drafter: type[ModelDrafter], policy: Policy) -> Decoder:
    """Its id 0 is the target's 2, its 2 the target's 1, and its 1 a token that the target lacks."""
    pair = Pair.make(seed=4, vocab_size=3)
    decoder, vocabulary = pair.decoder(policy, 2), DraftVocabulary.of({0: 2, 2: 1}, 3)
    shared: Any = {"sampler": decoder.sampler, "policy": policy, "num_spec_tokens": 2}
    return evolve(decoder, drafter=drafter(model=pair.draft, vocabulary=vocabulary, **shared))


def with_ngrams(policy: Policy) -> Decoder:
    return evolve(PAIR.decoder(policy, 0), drafter=NgramDrafter(num_spec_tokens=2))


DECODERS: dict[str, tuple[Callable[[Policy], Decoder], SamplingParams, int]] = {
    "draft model": (lambda policy: PAIR.decoder(policy, 2), PARAMS, 3),
    "drafts of three": (lambda policy: PAIR.decoder(policy, 3), PARAMS, 3),
    "argmax": (lambda policy: PAIR.decoder(policy, 2), ARGMAX, 3),
    "penalties": (lambda policy: PAIR.decoder(policy, 2), PENALTIES, 3),
    "another vocabulary": (partial(with_own_ids, ModelDrafter), PARAMS, 2),
    "n-gram": (with_ngrams, evolve(PARAMS, draft=None), 3),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("make", "params", "num_tokens"), DECODERS.values(), ids=DECODERS)
def test_decoding_is_exact(
    make: Callable[[Policy], Decoder], params: SamplingParams, num_tokens: int, policy: Policy
) -> None:
    assert error_of(make(policy), params, num_tokens) <= EXACT


@frozen(eq=False)
class MixingUp(ModelDrafter):
    """Tells the sampler the ids of its tokens in the wrong order."""

    def draft(self, memory: ModelMemory, frontier: Frontier, num_tokens: int) -> Drawn:
        drawn = super().draft(memory, frontier, num_tokens)
        assert drawn.draft_to_target is not None
        return evolve(drawn, draft_to_target=drawn.draft_to_target.flip(0))


@frozen(eq=False)
class Forgetful(ModelDrafter):
    """Keeps the last logits of a draft for all of its places."""

    def draft(self, memory: ModelMemory, frontier: Frontier, num_tokens: int) -> Drawn:
        drawn = super().draft(memory, frontier, num_tokens)
        assert drawn.logits is not None
        return evolve(drawn, logits=drawn.logits[:, num_tokens - 1 :].expand_as(drawn.logits))


@pytest.mark.parametrize("drafter", [MixingUp, Forgetful])
def test_ids_or_logits_that_are_mixed_up_are_caught(drafter: type[ModelDrafter]) -> None:
    assert error_of(with_own_ids(drafter, Block()), PARAMS, 3) > 1e-3


def test_a_text_reports_the_mean_of_what_was_done_to_its_tokens() -> None:
    decoder = PAIR.decoder(Typical(epsilon=0.2, delta=0.5), 3)
    noting = Noting(decoder.sampler)
    request = GenerationRequest(prompt_token_ids=PROMPT, params=PARAMS, max_tokens=40)
    (result,) = evolve(decoder, sampler=noting).generate([request])
    reports = list[float]()
    for output in noting.outputs:
        assert output.total_variation is not None
        reports += output.total_variation[output.token_ids >= 0].tolist()
    assert len(reports) >= 40
    assert len({*reports}) > 10
    assert result.total_variation == pytest.approx(sum(reports[:40]) / 40)


SMALL: dict[str, Any] = {"vocab_size": 3, "hidden_size": 8, "num_hidden_layers": 2}
HEAD: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 3}
FEWER: dict[str, Any] = {"draft_vocab_size": 2, "target_size": 8}
"""Heads of two of the target's three tokens."""
NESTED = {**SPECULATORS, "target_hidden_size": 8, TAPS: [0, 1, 2]}
HEADS: dict[str, tuple[str, HeadFiles | None]] = {
    "eagle": ("llama", eagle(**HEAD)),
    "eagle3": ("qwen3", eagle3(eagle_config={TAPS: [0, 1, 2]}, **FEWER, **HEAD)),
    "eagle3 of gpt-oss": ("gpt-oss", eagle3(nested=NESTED, **FEWER, **HEAD)),
    "mtp": ("glm4-moe-lite", None),
}
"""A family of targets, and the files of the head that drafts for it; None for its own layer."""
ROUNDING = 1e-5
"""Of float32 forwards, whose chunks are not the oracle's."""


def with_head(name: str, folder: Path, policy: Policy) -> Decoder:
    (family, files), kind = HEADS[name], name.split(maxsplit=1)[0]
    config = FAMILIES[family]
    fields = config.to_dict() | SMALL | {"num_nextn_predict_layers": 1}
    for types in ("layer_types", "mlp_layer_types"):
        if fields.get(types):
            fields[types] = fields[types][-2:]
    random_model(type(config)(**fields)).save_pretrained(folder)
    target = load_any_model(folder)
    if files is None:
        head = random_head(folder / "config.json", kind, target)
    else:
        head = load_head(files.save(folder / "head"), kind, target)
    return decoder_of(target, head, policy, 2)


@pytest.mark.parametrize("policy", [Probabilistic(), Block()])
@pytest.mark.parametrize("name", HEADS)
def test_decoding_with_a_head_is_exact(tmp_path: Path, name: str, policy: Policy) -> None:
    assert error_of(with_head(name, tmp_path, policy), PARAMS, 3) <= ROUNDING
