"""A decoder emits the tokens of plain decoding, and nothing after a stop."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest
from attrs import evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.app.request import FinishReason, GenerationRequest, GenerationResult, TokenKind
from acceptor.app.request_state import OutputText
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
    """Under strict policies for all parameters, under others for greedy ones."""
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
        assert followed + (result.kinds[-1] is TokenKind.ACCEPTED) == figures.num_drafts
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


SYLLABLES = ("", "a", "b", "ab", "ba", "aab", "bb", "c", "ca", "bc", "", "abc", "cc")
ALL_ACCEPTED = Synthetic((1.0,) * 8)
stops = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)


@frozen(eq=False)
class Syllables:
    """Texts of several letters, so that stop strings lie across tokens and inside them."""

    def push(self, token_ids: Iterable[int]) -> str:
        return "".join(SYLLABLES[token_id] for token_id in token_ids)

    def finish(self) -> str:
        return ""


@frozen(eq=False)
class HalfCharacters:
    """Text comes in pairs of tokens; a single one left comes at the end, marked."""

    waiting: list[int] = field(factory=list)

    def push(self, token_ids: Iterable[int]) -> str:
        self.waiting.extend(token_ids)
        if len(self.waiting) < 2:
            return ""
        text = "".join(SYLLABLES[token_id] for token_id in self.waiting)
        self.waiting.clear()
        return text

    def finish(self) -> str:
        return "".join(SYLLABLES[token_id] for token_id in self.waiting) + "?" * len(self.waiting)


@settings(max_examples=100)
@given(
    request=st.builds(
        partial(ask, 1),
        seed=st.integers(0, 2**64 - 1),
        max_tokens=st.sampled_from([1, 7, 20, 20]),
        # A lone string is one string.
        stop=stops.map(lambda stop: stop[0] if len(stop) == 1 else stop),
        ignore_eos=st.booleans(),
    ),
    policy=st.sampled_from(STRICT),
    num_spec_tokens=st.integers(0, 8),
    eos=st.sets(st.integers(0, 12), max_size=2),
)
def test_an_output_is_the_endless_one_cut_at_the_first_stop(
    pair: Pair, request: GenerationRequest, policy: Policy, num_spec_tokens: int, eos: set[int]
) -> None:
    endless = evolve(request, max_tokens=20, stop=(), ignore_eos=True)
    (uncut,) = pair.decoder(Strict(), 0).generate([endless])
    how: dict[str, Any] = {"eos_token_ids": eos, "new_detokenizer": Syllables}
    (cut,) = pair.decoder(policy, num_spec_tokens, **how).generate([request])
    ends = set() if request.ignore_eos else eos
    expected = cut_at_first_stop(uncut.token_ids[: request.max_tokens], request.stop, ends)
    assert (cut.token_ids, cut.text, cut.finish_reason) == expected


def cut_at_first_stop(
    token_ids: tuple[int, ...], stop: Sequence[str], end_token_ids: set[int]
) -> tuple[tuple[int, ...], str, FinishReason]:
    text = ""
    for place, token_id in enumerate(token_ids, start=1):
        if token_id in end_token_ids:
            return token_ids[:place], text, FinishReason.STOP
        text += SYLLABLES[token_id]
        found = [text.index(one) for one in stop if one in text]
        if found:
            return token_ids[:place], text[: min(found)], FinishReason.STOP
    return token_ids, text, FinishReason.LENGTH


@settings(max_examples=200)
@given(pieces=st.lists(st.sampled_from(SYLLABLES), max_size=12), stop=stops)
def test_what_is_streamed_is_never_taken_back(pieces: list[str], stop: list[str]) -> None:
    output, released, lengths = OutputText(tuple(stop)), "", []
    for place, piece in enumerate(pieces):
        stopped = output.append(piece, TokenKind.PLAIN)
        last = stopped or place == len(pieces) - 1
        released += "".join(fragment.text for fragment in output.release(ended=last))
        assert output.text.startswith(released)
        lengths.append(len(output.text) - len(released))
        if stopped:
            break
    assert released == output.text
    assert all(length < max(map(len, stop), default=1) for length in lengths)
    assert not any(one in released for one in stop)


def test_fragments_keep_the_kind_of_their_token() -> None:
    output = OutputText(("bc",))
    output.append("ab", TokenKind.ACCEPTED)
    first = output.release(ended=False)
    output.append("xy", TokenKind.BONUS)
    second = output.release(ended=True)
    told = [(fragment.text, fragment.kind) for fragment in first + second]
    assert told == [("a", "accepted"), ("b", "accepted"), ("xy", "bonus")]


@pytest.mark.parametrize("num_spec_tokens", range(9))
def test_the_context_ends_an_output(num_spec_tokens: int) -> None:
    short = Pair.make(max_model_len=20)
    request = ask(*[1] * 7, seed=1)
    (result,) = short.decoder(Strict(), num_spec_tokens).generate([request])
    (plain,) = short.decoder(Strict(), 0).generate([request])
    assert len(result.token_ids) == 20 - 7
    assert result.token_ids == plain.token_ids
    assert result.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("draft_context", [1, 2, 9, 12])
@pytest.mark.parametrize("policy", [Strict(), Strict(coupled=True)])
def test_beyond_the_draft_models_context_decoding_is_plain(
    pair: Pair, policy: Policy, draft_context: int
) -> None:
    short = evolve(pair, draft=evolve(pair.draft, max_model_len=draft_context))
    requests = [ask(*[1] * length, seed=1, max_tokens=20) for length in (1, 6, 11)]
    results = short.decoder(policy, 3).generate(requests)
    for result, plain in zip(results, short.decoder(policy, 0).generate(requests), strict=True):
        assert result.token_ids == plain.token_ids
        assert set(result.kinds[draft_context:]) == {TokenKind.PLAIN}


def test_unfinished_characters_come_out_in_the_end(pair: Pair) -> None:
    decoder = pair.decoder(Strict(), 4, new_detokenizer=HalfCharacters)
    request = ask(1, seed=5, max_tokens=7)
    (result,) = decoder.generate([request])
    assert result.text == "".join(SYLLABLES[token_id] for token_id in result.token_ids) + "?"
    (stopped,) = decoder.generate([evolve(request, stop=["?"])])
    assert stopped.text == result.text[:-1]
    assert stopped.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("policy", [Probabilistic(), ALL_ACCEPTED])
def test_progress_adds_up_to_the_result(pair: Pair, policy: Policy) -> None:
    requests = [ask(*[1] * n, stop=["bc", "d"], max_tokens=10 * n) for n in range(1, 5)]
    events = list(pair.decoder(policy, 4, new_detokenizer=Syllables).start(requests))
    for index in range(4):
        mine = [event for event in events if event.request_index == index]
        assert [event.result is not None for event in mine] == [False] * (len(mine) - 1) + [True]
        result = mine[-1].result
        assert result is not None
        assert sum((event.token_ids for event in mine), ()) == result.token_ids
        assert sum((event.kinds for event in mine), ()) == result.kinds
        assert "".join(f.text for event in mine for f in event.fragments) == result.text
