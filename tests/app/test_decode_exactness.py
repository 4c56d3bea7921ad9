"""The decode loop against plain decoding: same tokens, and figures that add up."""

from collections.abc import Sequence

import pytest
import torch
from attrs import evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import FinishReason, GenerationRequest, GenerationResult, TokenKind
from acceptor.core import (
    Block,
    Fly,
    Policy,
    Probabilistic,
    Recipe,
    RelaxedTopN,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingParams,
    SamplingTensors,
    Strict,
    Synthetic,
    Typical,
    VerifyBatch,
    VerifyOutput,
)
from kit.toy_pair import Pair, TableModel

STRICT = [Strict(), Strict(coupled=True)]
LOSSLESS = [*STRICT, Probabilistic(), Block()]
LOSSY = [Typical(), RelaxedTopN(), Fly()]

recipes = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.4, 1.0, 1.7]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    top_k=st.sampled_from([0, 3]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, -0.4]),
    logit_bias=st.sampled_from([{}, {1: 2.0, 4: -float("inf")}]),
    draft=st.sampled_from([None, Recipe(temperature=0), Recipe(temperature=0.7, top_k=4)]),
    seed=st.integers(0, 2**64 - 1),
)
requests = st.builds(
    GenerationRequest,
    prompt_token_ids=st.lists(st.integers(0, 12), min_size=1, max_size=9),
    params=recipes,
    max_tokens=st.integers(1, 24),
    stop=st.lists(st.text("abcdefghijkl", min_size=1, max_size=3), max_size=2),
    ignore_eos=st.booleans(),
)
batches = st.lists(requests, min_size=1, max_size=5)


@pytest.mark.parametrize("policy", STRICT, ids=lambda policy: policy.name)
@settings(max_examples=60, deadline=None)
@given(batch=batches, num_spec_tokens=st.integers(1, 8))
def test_strict_equals_plain_token_for_token(
    pair: Pair, policy: Policy, batch: list[GenerationRequest], num_spec_tokens: int
) -> None:
    plain = pair.decoder(policy, 0, eos_token_ids=[0]).generate(batch)
    speculative = pair.decoder(policy, num_spec_tokens, eos_token_ids=[0]).generate(batch)
    assert outcomes(speculative) == outcomes(plain)


@pytest.mark.parametrize("policy", LOSSLESS + LOSSY, ids=lambda policy: policy.name)
@settings(max_examples=20, deadline=None)
@given(batch=batches, num_spec_tokens=st.integers(1, 8))
def test_greedy_speculative_equals_greedy_plain(
    pair: Pair, policy: Policy, batch: list[GenerationRequest], num_spec_tokens: int
) -> None:
    batch = [evolve(one, params=evolve(one.params, temperature=0.0)) for one in batch]
    plain = pair.decoder(policy, 0, eos_token_ids=[0]).generate(batch)
    speculative = pair.decoder(policy, num_spec_tokens, eos_token_ids=[0]).generate(batch)
    assert outcomes(speculative) == outcomes(plain)


@pytest.mark.parametrize(
    "policy", [*LOSSLESS, *LOSSY, Synthetic((0.8, 0.5))], ids=lambda policy: policy.name
)
@settings(max_examples=25, deadline=None)
@given(batch=batches, num_spec_tokens=st.integers(1, 8))
def test_figures_add_up(
    pair: Pair, policy: Policy, batch: list[GenerationRequest], num_spec_tokens: int
) -> None:
    for result in pair.decoder(policy, num_spec_tokens, eos_token_ids=[0]).generate(batch):
        figures = result.statistics
        accepted = result.kinds.count(TokenKind.ACCEPTED)
        assert len(result.kinds) == len(result.token_ids)
        assert figures.num_accepted_tokens == accepted == sum(figures.num_accepted_per_pos)
        assert figures.num_accepted_tokens <= figures.num_draft_tokens
        assert (result.total_variation is not None) == (policy in LOSSY)
        followed = result.kinds.count(TokenKind.RECOVERED) + result.kinds.count(TokenKind.BONUS)
        cut_in_draft = result.kinds[-1] is TokenKind.ACCEPTED
        assert followed + cut_in_draft == figures.num_drafts
        assert figures.acceptance_rate_per_pos == sorted(
            figures.acceptance_rate_per_pos, reverse=True
        )


@pytest.mark.parametrize(
    "policy", [Strict(coupled=True), Probabilistic(), Block()], ids=lambda policy: policy.name
)
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 24)), min_size=1, max_size=4),
    num_spec_tokens=st.integers(1, 8),
)
def test_a_draft_that_is_the_target_is_accepted_whole(
    pair: Pair, policy: Policy, lengths: list[tuple[int, int]], num_spec_tokens: int
) -> None:
    # One outdated token in the draft's cache would make it another model.
    twins = evolve(pair, draft=pair.target)
    batch = [
        GenerationRequest(
            prompt_token_ids=[length] * length,
            params=SamplingParams(seed=length, top_p=0.9),
            max_tokens=max_tokens,
        )
        for length, max_tokens in lengths
    ]
    for result in twins.decoder(policy, num_spec_tokens).generate(batch):
        assert TokenKind.RECOVERED not in result.kinds
        assert result.statistics.num_accepted_tokens == result.statistics.num_draft_tokens


@pytest.mark.parametrize("policy", [Probabilistic(), Strict(coupled=True)], ids=lambda p: p.name)
def test_drafts_are_drawn_at_their_position_place_and_stream(pair: Pair, policy: Policy) -> None:
    decoder = pair.decoder(policy, 3)
    spy = Spy(decoder.sampler)
    assert isinstance(decoder.drafter, ModelDrafter)
    drafter = evolve(decoder.drafter, sampler=spy)
    batch = [GenerationRequest(prompt_token_ids=[1] * n, max_tokens=20) for n in (2, 5)]
    evolve(decoder, drafter=drafter, sampler=spy).generate(batch)
    drafts = []
    for seen in spy.batches:
        if isinstance(seen, SampleBatch):
            drafts.append(seen)
            assert seen.draft_index == len(drafts)
            assert seen.stream is policy.draft_stream
            # A sampler may read them as they lie in memory.
            assert seen.positions.is_contiguous()
            continue
        for place, draft in enumerate(drafts):
            assert torch.equal(draft.positions, seen.positions + place)
        drafts.clear()


@frozen
class Spy:
    """A sampler that remembers what it was asked."""

    sampler: Sampler
    batches: list[SampleBatch | VerifyBatch] = field(factory=list)

    def sample(self, batch: SampleBatch, params: SamplingTensors) -> SampleOutput:
        self.batches.append(batch)
        return self.sampler.sample(batch, params)

    def verify(self, batch: VerifyBatch, params: SamplingTensors, policy: Policy) -> VerifyOutput:
        self.batches.append(batch)
        return self.sampler.verify(batch, params, policy)


@settings(max_examples=40, deadline=None)
@given(batch=batches, num_spec_tokens=st.integers(0, 5), data=st.data())
def test_neighbours_do_not_matter(
    pair: Pair, batch: list[GenerationRequest], num_spec_tokens: int, data: st.DataObject
) -> None:
    decoder = pair.decoder(Probabilistic(), num_spec_tokens, eos_token_ids=[0])
    together = decoder.generate(batch)
    order = data.draw(st.permutations(range(len(batch))))
    shuffled = decoder.generate([batch[index] for index in order])
    assert [outcomes(shuffled)[order.index(i)] for i in range(len(batch))] == outcomes(together)
    assert [outcomes(decoder.generate([one]))[0] for one in batch] == outcomes(together)


@pytest.mark.parametrize("policy", LOSSLESS, ids=lambda policy: policy.name)
def test_a_reported_seed_replays_the_result(pair: Pair, policy: Policy) -> None:
    request = GenerationRequest(prompt_token_ids=[1, 2], max_tokens=40)
    decoder = pair.decoder(policy, 4)
    (first,), (other,) = decoder.generate([request]), decoder.generate([request])
    again = evolve(request, params=evolve(request.params, seed=first.seed))
    assert decoder.generate([again])[0].token_ids == first.token_ids
    assert first.seed != other.seed
    assert first.token_ids != other.token_ids


@pytest.mark.parametrize("policy", [*LOSSLESS, Synthetic((1.0, 0.5, 0.5))], ids=lambda p: p.name)
def test_logprobs_are_those_of_the_plain_law(pair: Pair, policy: Policy) -> None:
    params = SamplingParams(seed=3, logprobs=2, temperature=0.7, top_p=0.9)
    requests = [
        GenerationRequest(prompt_token_ids=[1, 2, 3], max_tokens=30, params=params),
        GenerationRequest(prompt_token_ids=[4], max_tokens=9, params=evolve(params, logprobs=None)),
        GenerationRequest(prompt_token_ids=[7], max_tokens=9, params=evolve(params, logprobs=0)),
    ]
    with_logprobs, without, emitted_only = pair.decoder(policy, 3).generate(requests)
    assert without.logprobs is None
    assert emitted_only.logprobs is not None
    assert with_logprobs.logprobs is not None
    assert [entry.top for entry in emitted_only.logprobs] == [()] * 9
    assert len(with_logprobs.logprobs) == 30
    known = [1, 2, 3]
    for token_id, entry in zip(with_logprobs.token_ids, with_logprobs.logprobs, strict=True):
        law = next_law(pair.target, known)
        assert entry.emitted == pytest.approx(law[token_id].item(), abs=1e-5)
        assert [place for place, _ in entry.top] == law.topk(2).indices.tolist()
        assert [value for _, value in entry.top] == pytest.approx(law.topk(2).values.tolist())
        known.append(token_id)


@pytest.mark.parametrize("num_spec_tokens", [0, 5])
def test_penalties_count_prompt_and_output(pair: Pair, num_spec_tokens: int) -> None:
    prompt = (1, 2, 3, 4, 5)
    params = SamplingParams(
        temperature=0, repetition_penalty=1.7, presence_penalty=0.3, frequency_penalty=0.2
    )
    request = GenerationRequest(prompt_token_ids=prompt, max_tokens=30, params=params)
    (result,) = pair.decoder(Strict(), num_spec_tokens).generate([request])
    for place, token_id in enumerate(result.token_ids):
        output = result.token_ids[:place]
        logits = next_logits(pair.target, [*prompt, *output])
        for seen in {*prompt, *output}:
            logits[seen] *= 1.7 if logits[seen] < 0 else 1 / 1.7
        for emitted in set(output):
            logits[emitted] -= 0.3 + 0.2 * output.count(emitted)
        assert token_id == logits.argmax()


def test_a_one_token_prompt_and_one_token_to_emit(pair: Pair) -> None:
    (result,) = pair.decoder(Strict(), 5).generate(
        [GenerationRequest(prompt_token_ids=[3], max_tokens=1)]
    )
    assert len(result.token_ids) == 1
    assert result.kinds == (TokenKind.PLAIN,)
    assert result.statistics.num_drafts == 0
    assert result.finish_reason is FinishReason.LENGTH


def test_an_empty_batch(pair: Pair) -> None:
    assert pair.decoder(Strict(), 5).generate([]) == []


def next_law(model: TableModel, known: list[int]) -> Tensor:
    return next_logits(model, known).log_softmax(-1)


def next_logits(model: TableModel, known: list[int]) -> Tensor:
    positions = torch.arange(len(known))[None]
    cache = model.new_cache(1, len(known))
    logits = model.forward(torch.tensor([known]), positions, cache, torch.tensor([0]))
    return logits[0, -1].double()


def outcomes(results: Sequence[GenerationResult]) -> list[tuple[object, ...]]:
    return [(r.token_ids, r.text, r.finish_reason, r.status, r.seed) for r in results]
