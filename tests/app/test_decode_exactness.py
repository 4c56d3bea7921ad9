"""The decode loop against plain decoding: same tokens, and figures that add up."""

from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.app.request import GenerationRequest, GenerationResult, TokenKind
from acceptor.core import Block, Fly, Policy, Probabilistic, RelaxedTopN, Strict, Synthetic, Typical
from kit.toy_pair import Pair, next_logits
from kit.toy_requests import ask, requests

STRICT = (Strict(), Strict(coupled=True))
LOSSLESS = (*STRICT, Probabilistic(), Block())
LOSSY = (Typical(), RelaxedTopN(), Fly())
batches = st.lists(requests(max_tokens=24), min_size=1, max_size=5)


def policies(*values: Policy) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("policy", values)


@policies(*LOSSLESS, *LOSSY)
@settings(max_examples=14)
@given(batch=batches, num_spec_tokens=st.integers(1, 8))
def test_speculative_equals_plain_token_for_token(
    pair: Pair, policy: Policy, batch: list[GenerationRequest], num_spec_tokens: int
) -> None:
    """Under strict policies whatever was asked, under others what is greedy."""
    if policy not in STRICT:
        batch = [evolve(one, params=evolve(one.params, temperature=0.0)) for one in batch]
    plain = pair.decoder(policy, 0, eos_token_ids=[0]).generate(batch)
    speculative = pair.decoder(policy, num_spec_tokens, eos_token_ids=[0]).generate(batch)
    assert outcomes(speculative) == outcomes(plain)


@policies(*LOSSLESS, *LOSSY, Synthetic((0.8, 0.5)))
@settings(max_examples=8)
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
        rates = figures.acceptance_rate_per_pos
        assert rates == sorted(rates, reverse=True)


@policies(Strict(coupled=True), Probabilistic(), Block())
@settings(max_examples=8)
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
        ask(*[length] * length, seed=length, top_p=0.9, max_tokens=max_tokens)
        for length, max_tokens in lengths
    ]
    for result in twins.decoder(policy, num_spec_tokens).generate(batch):
        assert TokenKind.RECOVERED not in result.kinds
        assert result.statistics.num_accepted_tokens == result.statistics.num_draft_tokens


@policies(*LOSSLESS)
def test_a_reported_seed_replays_the_result(pair: Pair, policy: Policy) -> None:
    decoder, request = pair.decoder(policy, 4), ask(1, 2, seed=None, max_tokens=40)
    (first,), (other,) = decoder.generate([request]), decoder.generate([request])
    (again,) = decoder.generate([ask(1, 2, seed=first.seed, max_tokens=40)])
    assert again.token_ids == first.token_ids != other.token_ids
    assert first.seed != other.seed


@policies(*LOSSLESS, Synthetic((1.0, 0.5, 0.5)))
def test_logprobs_are_those_of_the_plain_law(pair: Pair, policy: Policy) -> None:
    recipe: dict[str, Any] = {"seed": 3, "temperature": 0.7, "top_p": 0.9}
    with_logprobs, without, emitted_only = pair.decoder(policy, 3).generate(
        [
            ask(1, 2, 3, max_tokens=30, logprobs=2, **recipe),
            ask(4, max_tokens=9, **recipe),
            ask(7, max_tokens=9, logprobs=0, **recipe),
        ]
    )
    assert without.logprobs is None
    assert emitted_only.logprobs is not None
    assert with_logprobs.logprobs is not None
    assert [entry.top for entry in emitted_only.logprobs] == [()] * 9
    assert len(with_logprobs.logprobs) == 30
    known = [1, 2, 3]
    for token_id, entry in zip(with_logprobs.token_ids, with_logprobs.logprobs, strict=True):
        law = next_logits(pair.target, tuple(known)).log_softmax(-1)
        assert entry.emitted == pytest.approx(law[token_id].item(), abs=1e-5)
        assert [place for place, _ in entry.top] == law.topk(2).indices.tolist()
        assert [value for _, value in entry.top] == pytest.approx(law.topk(2).values.tolist())
        known.append(token_id)


def test_an_empty_batch(pair: Pair) -> None:
    assert pair.decoder(Strict(), 5).generate([]) == []


def outcomes(results: Sequence[GenerationResult]) -> list[tuple[object, ...]]:
    return [(r.token_ids, r.text, r.finish_reason, r.status, r.seed) for r in results]
