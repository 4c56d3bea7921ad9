"""Decodes with a draft head, and records everything that was drafted."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.app.decode import DecodeStep
from acceptor.app.decoder import Decoder
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.head_drafter import HeadDrafter
from acceptor.backends import load_sampler
from acceptor.core import (
    Policy,
    Probabilistic,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from kit.toy_pair import decoder_for
from kit.toy_requests import ask


@frozen
class Draft:
    """The draft of one request in one step."""

    request: int
    length: int
    token_ids: list[int]
    logits: Tensor


@frozen
class Noting(Sampler):
    """A sampler that records what it verifies, and the outcome."""

    sampler: Sampler
    drafts: list[Draft] = field(factory=list)
    outputs: list[VerifyOutput] = field(factory=list)

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        return self.sampler.sample(batch, params, **memory)

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        assert batch.slot_ids is not None
        lengths, slots = batch.positions.tolist(), batch.slot_ids.tolist()
        per_request = batch.draft_token_ids.view(len(slots), -1).tolist()
        for length, slot, row in zip(lengths, slots, per_request, strict=True):
            drafted = [token_id for token_id in row if token_id >= 0]
            if drafted:
                assert batch.draft_logits is not None
                logits = batch.draft_logits[slot, : len(drafted)].clone()
                self.drafts.append(Draft(slot, length, drafted, logits))
        self.outputs.append(self.sampler.verify(batch, params, policy, **memory))
        return self.outputs[-1]


def decoder_of(target: Any, head: Any, policy: Policy, num_spec_tokens: int) -> Decoder:
    plain = decoder_for(target, load_sampler("reference"), policy)
    return with_head(plain, head, num_spec_tokens)


def with_head(decoder: Decoder, head: Any, num_spec_tokens: int = 3) -> Decoder:
    drafter = HeadDrafter(
        head=head,
        target_vocab_size=decoder.target.vocab_size,
        sampler=decoder.sampler,
        policy=decoder.policy,
        num_spec_tokens=num_spec_tokens,
    )
    return evolve(decoder, drafter=drafter)


def decode(
    target: Any,
    head: Any,
    num_spec_tokens: int,
    new_runner: Callable[[DecodeStep], Runner] = EagerRunner,
) -> tuple[list[Draft], list[list[int]]]:
    """All drafts, and the texts; some drafts are rejected, some are not."""
    noting = Noting(load_sampler("reference"))
    decoding = decoder_of(target, head, Probabilistic(), num_spec_tokens)
    decoding = evolve(decoding, new_runner=new_runner)
    requests = [ask(*p, seed=i, max_tokens=NUM_TOKENS) for i, p in enumerate(PROMPTS)]
    results = evolve(decoding, sampler=noting).generate(requests)
    num_accepted = sum(one.statistics.num_accepted_tokens for one in results)
    assert 0 < num_accepted < sum(one.statistics.num_draft_tokens for one in results)
    texts = [[*p, *one.token_ids] for p, one in zip(PROMPTS, results, strict=True)]
    return noting.drafts, texts


PROMPTS = ((5,), (7, 3, 9, 9, 4, 11, 2), (8, 2, 30, 41, 6, 5, 3, 20, 10, 4, 12, 33))
"""One prompt that leaves a drafter nothing to read, and others of unequal lengths."""

NUM_TOKENS = 10


def distance(
    say: Callable[[Any, Sequence[int], Sequence[int]], Tensor],
    drafts: Sequence[Draft],
    texts: Sequence[Sequence[int]],
    hidden: Sequence[Any],
) -> float:
    """The largest error of a draft's logits, given hidden states, known tokens and drafts."""

    def of(draft: Draft) -> float:
        known = texts[draft.request][: draft.length]
        said = say(hidden[draft.request], known, draft.token_ids)
        return float((draft.logits - said).abs().max())

    return max(map(of, drafts))
