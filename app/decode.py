"""One step of decoding: draft, score, verify.

Plain decoding is the same step without drafts. It computes on tensors alone and never waits for the
device, so it can be captured in a CUDA graph. This module refuses to know which models, which
policy and which backend it runs, and which requests: see `acceptor.app.engine`.
"""

from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..core.batch import VerifyBatch
from ..core.output import VerifyOutput
from ..core.policies import Policy
from ..core.ports import LanguageModel, Sampler
from ..core.token_counts import TokenCounts
from .drafter import Draft, Drafter
from .frontier import Frontier


@frozen(eq=False, kw_only=True)
class Memory:
    """What is remembered of the running requests, by slot.

    Attributes:
        num_slots: how many requests fit. There is one slot more, the last, that belongs to nobody:
            batches of a fixed size fill up with it.
        max_len: how many positions each slot has.
        target_cache: of the target.
        draft_memory: of the drafter.
    """

    num_slots: int
    max_len: int
    target_cache: Any
    draft_memory: Any


@frozen(eq=False, kw_only=True)
class DecodeStep:
    """What decodes, and what it remembers.

    Attributes:
        target: scores the drafts; the output follows its law.
        drafter: proposes them.
        sampler: verifies them.
        policy: by this law.
        memory: of the requests.
    """

    target: LanguageModel[Any]
    drafter: Drafter[Any]
    sampler: Sampler
    policy: Policy
    memory: Memory

    def draft(self, frontier: Frontier) -> Draft:
        """Drafts as long as there is use for them."""
        num_tokens = frontier.num_spec_tokens
        if num_tokens == 0:
            return Draft.empty(len(frontier.lengths), frontier.lengths.device)
        memory = self.memory.draft_memory
        draft = self.drafter.draft(memory, frontier, num_tokens)
        draft.shorten(frontier.rooms)
        return draft

    def score(self, frontier: Frontier, draft: Draft) -> Tensor:
        """The target's logits at every draft token and behind: [num_reqs, num_tokens + 1, V]."""
        drafts = draft.token_ids.clamp(0, self.target.vocab_size - 1)
        # Behind a shortened draft any token at any later position will do: it is not looked at, and
        # written over before it could be.
        num_tokens, max_len = drafts.shape[1], self.memory.max_len
        return self.target.forward(
            torch.cat((frontier.last_token_ids[:, 1:], drafts), 1),
            frontier.positions(-1, num_tokens - 1).clamp(max=max_len - 1),
            self.memory.target_cache,
            frontier.slot_ids,
            max_position=frontier.last_position(num_tokens - 1, max_len),
        )

    def verify(
        self, frontier: Frontier, draft: Draft, logits: Tensor, token_counts: TokenCounts | None
    ) -> VerifyOutput:
        """Decide which draft tokens survive, and what follows them."""
        batch = VerifyBatch.dense(
            target_logits=logits,
            draft_token_ids=draft.token_ids,
            positions=frontier.lengths,
            draft_logits=draft.logits,
            slot_ids=frontier.slot_ids,
            token_counts=token_counts,
        )
        output = self.sampler.verify(batch, frontier.params, self.policy)
        if token_counts is not None:
            token_counts.add(frontier.slot_ids, output.token_ids)
        return output
