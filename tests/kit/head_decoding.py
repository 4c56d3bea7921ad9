"""Decoding with a draft head, and everything that was drafted."""

from collections.abc import Callable
from typing import Any

from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.app.decode import DecodeStep
from acceptor.app.decoder import Decoder
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.head_drafter import HeadDrafter
from acceptor.backends import load_sampler
from acceptor.core import (
    AcceptanceStatistics,
    Policy,
    Probabilistic,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from kit.no_workspace import NoWorkspace
from kit.plain_decoding import NUM_TOKENS, PROMPTS
from kit.toy_pair import Letters
from kit.toy_requests import ask


@frozen
class Draft:
    """Of one request in one step."""

    request: int
    length: int
    token_ids: list[int]
    logits: Tensor


@frozen
class Noting(NoWorkspace):
    """A sampler that notes what it verifies."""

    sampler: Sampler
    drafts: list[Draft] = field(factory=list)

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
        return self.sampler.verify(batch, params, policy, **memory)


def decoder_of(target: Any, head: Any, policy: Policy, num_spec_tokens: int) -> Decoder:
    """A target and a head."""
    sampler = load_sampler("reference")
    return Decoder(
        target=target,
        drafter=HeadDrafter(
            head=head,
            target_vocab_size=target.vocab_size,
            sampler=sampler,
            policy=policy,
            num_spec_tokens=num_spec_tokens,
        ),
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=Letters,
    )


def decode(
    target: Any,
    head: Any,
    num_spec_tokens: int,
    new_runner: Callable[[DecodeStep], Runner] = EagerRunner,
) -> tuple[list[Draft], list[list[int]]]:
    """Everything that was drafted, and the texts; some drafts are rejected, some are not."""
    noting = Noting(load_sampler("reference"))
    decoding = decoder_of(target, head, Probabilistic(), num_spec_tokens)
    decoding = evolve(decoding, new_runner=new_runner)
    requests = [ask(*p, seed=i, max_tokens=NUM_TOKENS) for i, p in enumerate(PROMPTS)]
    results = evolve(decoding, sampler=noting).generate(requests)
    total = sum((one.statistics for one in results), AcceptanceStatistics())
    assert 0 < total.num_accepted_tokens < total.num_draft_tokens
    texts = [[*p, *one.token_ids] for p, one in zip(PROMPTS, results, strict=True)]
    return noting.drafts, texts
