"""The decode loop: draft, score, verify, advance.

Plain decoding is the same loop without drafts. This module refuses to know which models, which
policy and which backend it runs; see `acceptor.app.wiring`.
"""

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import torch
from attrs import define
from torch import Tensor

from ..core.batch import VerifyBatch
from ..core.output import VerifyOutput
from ..core.policies import Policy
from ..core.ports import LanguageModel, Sampler
from ..core.token_counts import TokenCounts
from .drafter import Draft, Drafter
from .frontier import Frontier, Running
from .request import Progress
from .request_state import RequestState, Verdict
from .verdicts import read_verdicts


@define(eq=False, kw_only=True)
class DecodeRun:
    """A batch on its way, from `Decoder.start`; iterate over it to decode.

    Attributes:
        target: scores the drafts; the output follows its law.
        drafter: proposes them.
        sampler: verifies them.
        policy: by this law.
        states: all requests, also those that have ended.
        running: those that have not.
        max_len: how many positions the target's cache has in each slot.
        target_cache: of the target.
        draft_memory: of the drafter.
        token_counts: None unless a request has penalties.
        prefill_seconds: time spent on the prompts.
        decode_seconds: time spent in steps, without what the caller does between them.
    """

    target: LanguageModel[Any]
    drafter: Drafter[Any]
    sampler: Sampler
    policy: Policy
    states: Sequence[RequestState]
    running: Running
    max_len: int
    target_cache: Any
    draft_memory: Any
    token_counts: TokenCounts | None
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    def __iter__(self) -> Iterator[Progress]:
        while self.running.states:
            yield from self.step()

    def step(self) -> list[Progress]:
        """Draft, score, verify and advance every running request."""
        began = perf_counter()
        with torch.inference_mode():
            frontier = Frontier.of(self.running)
            draft = self._draft(frontier)
            logits = self._score(frontier, draft)
            output = self._verify(frontier, draft, logits)
        progress = self._advance(read_verdicts(draft, output))
        self.decode_seconds += perf_counter() - began
        return progress

    def _draft(self, frontier: Frontier) -> Draft:
        rooms = [
            min(self.drafter.num_spec_tokens, state.room_for_draft(self.drafter.max_model_len))
            for state in self.running.states
        ]
        if max(rooms) == 0:
            return Draft.empty(len(rooms), frontier.lengths.device)
        return self.drafter.draft(self.draft_memory, frontier, max(rooms)).shortened(rooms)

    def _score(self, frontier: Frontier, draft: Draft) -> Tensor:
        drafts = draft.token_ids.clamp(0, self.target.vocab_size - 1)
        # Behind a shortened draft any token at any later position will do: it is not looked at, and
        # written over before it could be.
        num_tokens = drafts.shape[1]
        positions = frontier.positions(-1, num_tokens - 1).clamp(max=self.max_len - 1)
        return self.target.forward(
            torch.cat((frontier.last_token_ids[:, 1:], drafts), 1),
            positions,
            self.target_cache,
            frontier.slot_ids,
            max_position=min(frontier.max_length - 1 + num_tokens, self.max_len - 1),
        )

    def _verify(self, frontier: Frontier, draft: Draft, logits: Tensor) -> VerifyOutput:
        batch = VerifyBatch.dense(
            target_logits=logits,
            draft_token_ids=draft.token_ids,
            positions=frontier.lengths,
            draft_logits=draft.logits,
            slot_ids=frontier.slot_ids,
            token_counts=self.token_counts,
        )
        output = self.sampler.verify(batch, frontier.params, self.policy)
        if self.token_counts is not None:
            self.token_counts.add(frontier.slot_ids, output.token_ids)
        return output

    def _advance(self, verdicts: Sequence[Verdict]) -> list[Progress]:
        progress = [
            state.advance(verdict)
            for state, verdict in zip(self.running.states, verdicts, strict=True)
        ]
        if any(one.result is not None for one in progress):
            self.running = Running.gather(self.states, self.target.device)
        return progress
