"""The law of what the application decodes, its own drafters included, enumerated in float64."""

from collections.abc import Callable
from functools import partial

import pytest
from attrs import evolve, frozen

from acceptor.app.decoder import Decoder
from acceptor.app.draft_vocabulary import DraftVocabulary
from acceptor.app.drafter import Drawn
from acceptor.app.drawing import ModelMemory
from acceptor.app.frontier import Frontier
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.ngram_drafter import NgramDrafter
from acceptor.app.request import GenerationRequest
from acceptor.core import Block, Policy, Recipe, SamplingParams, Strict, Typical
from kit.head_decoding import Noting
from kit.law_of_decoder import PROMPT, error_of
from kit.laws.exact import EXACT
from kit.toy_pair import Pair

PAIR = Pair.make(seed=4, vocab_size=2)
POLICIES = (Strict(coupled=True), Block())
"""They mind most: the noise of the drafts, and all later positions of a draft."""
PARAMS = SamplingParams(seed=5, temperature=1.3, draft=Recipe(temperature=0.6))
ARGMAX = evolve(PARAMS, draft=Recipe(temperature=0))


def with_own_ids(drafter: type[ModelDrafter], policy: Policy) -> Decoder:
    """Its id 0 is the target's 2, its 2 the target's 1, and its 1 a token that the target lacks."""
    pair = Pair.make(seed=4, vocab_size=3)
    decoder = pair.decoder(policy, 2)
    drafts = drafter(
        model=pair.draft,
        sampler=decoder.sampler,
        policy=policy,
        num_spec_tokens=2,
        vocabulary=DraftVocabulary.of({0: 2, 2: 1}, 3),
    )
    return evolve(decoder, drafter=drafts)


def with_ngrams(policy: Policy) -> Decoder:
    return evolve(PAIR.decoder(policy, 0), drafter=NgramDrafter(num_spec_tokens=2))


DECODERS: dict[str, tuple[Callable[[Policy], Decoder], SamplingParams, int]] = {
    "draft model": (lambda policy: PAIR.decoder(policy, 2), PARAMS, 3),
    "drafts of three": (lambda policy: PAIR.decoder(policy, 3), PARAMS, 3),
    "argmax": (lambda policy: PAIR.decoder(policy, 2), ARGMAX, 3),
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
