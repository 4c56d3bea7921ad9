"""One step of decoding: draft, score, verify.

Plain decoding is the same step without drafts. A step works on tensors alone and never waits for
the device, so it can be captured in a CUDA graph.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from attrs import field, fields, frozen

from ..core import PADDING_TOKEN_ID, Policy, Status, TokenCounts, VerifyBatch, VerifyOutput
from ..core.policies.parameters import derived
from ..core.ports import LanguageModel, Sampler, Scores
from .drafter import Chunk, Drafter, Drawn
from .drawing import Workspace
from .frontier import Frontier, Known
from .request_state import RequestState
from .token_masks import StepMasks
from .verdicts import Draft


@frozen(eq=False, kw_only=True)
class Models:
    """A target model, its drafter, and the sampler and policy that decide between them."""

    target: LanguageModel[Any]
    drafter: Drafter[Any]
    sampler: Sampler
    policy: Policy


@frozen(eq=False, kw_only=True)
class DecodeStep(Models):
    """The parts that decode, and their memory of running requests by slot.

    Attributes:
        num_spare: slots after those, which belong to no request: the first one fills up
            batches of a fixed size.
    """

    num_slots: int
    max_len: int
    num_spare: int
    num_all: int = derived(lambda self: self.num_slots + self.num_spare)
    target_cache: Any = derived(lambda self: self.target.new_cache(self.num_all, self.max_len))
    draft_memory: Any = derived(lambda self: self.drafter.new_memory(self.num_all, self.max_len))
    workspace: Workspace = field(factory=Workspace, init=False)

    @classmethod
    def allocate(
        cls, models: Models, num_slots: int, max_len: int, num_spare: int = 1
    ) -> "DecodeStep":
        """Allocate memory for this many requests of this many tokens each."""
        given = {part.name: getattr(models, part.name) for part in fields(Models)}
        return cls(num_slots=num_slots, max_len=max_len, num_spare=num_spare, **given)

    @cached_property
    def token_counts(self) -> TokenCounts:
        """The token counts for penalties, allocated on first use, for which memory may lack."""
        return TokenCounts.empty(self.num_all, self.target.vocab_size, self.target.device)

    def count(self, state: RequestState) -> None:
        """Count a request's tokens anew, if it has penalties."""
        if not state.request.params.has_penalties:
            return
        prompt, device = state.request.prompt_token_ids, self.target.device
        self.token_counts.start(state.slot_id, prompt)
        if emitted := state.token_ids[len(prompt) :]:
            slot_ids = torch.tensor([state.slot_id], device=device)
            self.token_counts.add(slot_ids, torch.tensor([emitted], device=device))

    def enter(self, slot_id: int, prompt: Sequence[int], start: int) -> int:
        """Write the chunk of a prompt that begins at start into the models' caches; return its end.

        The ends do not depend on what else is in the step.
        """
        chunk = Chunk.of(slot_id, prompt, start, self.target.device)
        scores = chunk.enter(self.target, self.target_cache, self.drafter.taps)
        self.drafter.enter(self.draft_memory, chunk, scores.hidden)
        return chunk.end

    def catch_up(self, known: Known, draft_limits: Sequence[int]) -> None:
        """Get the drafter ready for a step."""
        self.drafter.catch_up(self.draft_memory, known, draft_limits)

    def draft(self, frontier: Frontier) -> Draft:
        """Draft as many tokens as are useful."""
        num_tokens, memory = frontier.num_spec_tokens, self.draft_memory
        drawn = self.drafter.draft(memory, frontier, num_tokens) if num_tokens else Drawn()
        return self.join(frontier, drawn)

    def join(self, frontier: Frontier, drawn: Drawn) -> Draft:
        """The last known token of each request, and the draft after it."""
        # After a shortened draft any token at any later position will do: it is not read, and
        # overwritten before it could be.
        num_tokens, lengths = len(drawn.outputs), frontier.lengths
        ahead = torch.arange(-1, num_tokens, device=lengths.device)
        positions = (lengths[:, None] + ahead).clamp(max=self.max_len - 1)
        drafted = [output.token_ids for output in drawn.outputs]
        token_ids = torch.stack((frontier.last_token_ids[:, 1], *drafted), 1)
        if num_tokens == 0:
            status = lengths.new_zeros((len(lengths), 0), dtype=torch.int32)
        else:
            behind = ahead[1:] >= frontier.draft_limits[:, None]
            token_ids[:, 1:].masked_fill_(behind, PADDING_TOKEN_ID)
            status = torch.stack([output.status for output in drawn.outputs], 1)
            status.masked_fill_(behind, Status.OK)
        return Draft(token_ids, positions, status, drawn.logits, drawn.draft_to_target)

    def score(self, frontier: Frontier, draft: Draft) -> Scores:
        """Score every draft token and the one after the draft: [num_reqs, num_tokens + 1, …]."""
        num_tokens = draft.token_ids.shape[1]
        return self.target.forward(
            # Entries after a draft are -1, which no model knows; their scores are not read.
            draft.chain.clamp(min=0),
            draft.positions,
            self.target_cache,
            frontier.slot_ids,
            max_position=frontier.last_position(num_tokens - 1, self.max_len),
            taps=self.drafter.taps,
        )

    def verify(
        self,
        frontier: Frontier,
        draft: Draft,
        scores: Scores,
        token_counts: TokenCounts | None,
        masks: StepMasks | None = None,
    ) -> VerifyOutput:
        """Decide which draft tokens survive and what follows them."""
        logits = scores.logits
        batch = VerifyBatch.dense(
            target_logits=logits,
            draft_token_ids=draft.token_ids,
            positions=frontier.lengths,
            draft_logits=draft.logits,
            slot_ids=frontier.slot_ids,
            draft_to_target=draft.draft_to_target,
            token_counts=token_counts,
            allowed_tokens=None if masks is None else masks.allowed_tokens,
            allowed_rows=None if masks is None else masks.allowed_rows,
        )
        num_bytes = self.sampler.verify_workspace_size(batch, frontier.params, self.policy)
        with self.workspace.for_call(num_bytes, logits.device) as workspace:
            output = self.sampler.verify(batch, frontier.params, self.policy, workspace=workspace)
        if token_counts is not None:
            token_counts.add(frontier.slot_ids, output.token_ids)
        return output

    def follow(
        self, frontier: Frontier, draft: Draft, scores: Scores, output: VerifyOutput
    ) -> None:
        """Give the drafter the step's scores and decisions."""
        memory, emitted = self.draft_memory, output.token_ids
        self.drafter.follow(memory, frontier, draft.positions, emitted, scores.hidden)
