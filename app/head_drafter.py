"""Drafts from a head on the target's own hidden states: EAGLE, EAGLE-3 and their like.

After each step the head reads the target's hidden states of all known tokens but the last; its
result scores the first draft token. While it drafts, its own features replace hidden states that
the target has not computed yet; the next step overwrites those rows.
"""

import logging
from collections.abc import Sequence

import torch
from attrs import field, frozen
from torch import Tensor

from ..adapters.draft_heads.head import Head
from ..core import AcceptanceStatistics
from ..core.policies.parameters import derived
from .drafter import Chunk, Drawn
from .drawing import Drawing, DrawingDrafter, ModelMemory
from .frontier import Frontier
from .verdicts import Verdict

NUM_DRAFTS = 256
LEAST_RATE = 0.05

_logger = logging.getLogger(__name__)


@frozen(eq=False, kw_only=True)
class HeadMemory(ModelMemory):
    """The memory of a head: a model's, and features.

    Attributes:
        features: [num_slots, num_kept, feature_size], the head's features of a token, at its
            position modulo num_kept.
    """

    features: Tensor

    def keep(self, slot_ids: Tensor, positions: Tensor, features: Tensor) -> None:
        """Store features [num_reqs, num_rows, feature_size] of tokens at positions."""
        self.features[slot_ids[:, None], positions % self.features.shape[1]] = features


@frozen(eq=False, kw_only=True)
class HeadDrafter(DrawingDrafter[HeadMemory]):
    """A `Drafter` that decodes with a head.

    Attributes:
        head: the draft head.
        target_vocab_size: how many ids the target has.
        first_drafts: counts the first `NUM_DRAFTS`; None if almost nothing accepted is expected.
    """

    head: Head
    target_vocab_size: int
    first_drafts: AcceptanceStatistics | None = field(factory=AcceptanceStatistics)
    max_model_len: int = derived(lambda self: self.head.max_model_len)
    taps: tuple[int, ...] = derived(lambda self: self.head.taps)
    draft_to_target: Tensor | None = derived(lambda self: self.head.draft_to_target)

    def new_memory(self, num_slots: int, max_len: int) -> HeadMemory:
        """Allocate a cache, and memory for features and logits."""
        head = self.head
        # A step may run again after the next one has begun, so the features that it reads must
        # outlive the tokens of both.
        shape = (num_slots, 3 * (self.num_spec_tokens + 1), head.feature_size)
        features = torch.zeros(shape, dtype=head.dtype, device=head.device)
        room = self.room(head, head.vocab_size, num_slots, max_len)
        return HeadMemory(features=features, **room)

    def enter(self, memory: HeadMemory, chunk: Chunk, hidden: Sequence[Tensor]) -> None:
        """Write the rows of a prompt; each also reads the token after its own."""
        features = self.head.forward(
            self.head.read(hidden),
            chunk.next_ids,
            chunk.positions,
            memory.cache,
            chunk.slot_ids,
            max_position=chunk.end - 1,
        )
        memory.keep(chunk.slot_ids, chunk.positions[:, -1:], features[:, -1:])

    def clear(self, memory: HeadMemory, slot_ids: Sequence[int]) -> None:
        """Forget slots."""
        self.head.clear(memory.cache, slot_ids)
        memory.features[list(slot_ids)] = 0

    def draft(self, memory: HeadMemory, frontier: Frontier, num_tokens: int) -> Drawn:
        """Draft one token after the other; for the first only the LM head has still to run.

        A prompt of one token has no features yet: its first draft is drawn from features of 0.
        """
        drawing = Drawing(self, frontier, memory, num_tokens)
        last = (frontier.lengths - 2) % memory.features.shape[1]
        features = memory.features[frontier.slot_ids, last]
        drawing.draw(self.head.score(features))
        for place in range(1, num_tokens):
            features = self.head.forward(
                features[:, None],
                drawing.last_token_ids,
                drawing.fed[:, place, None],
                memory.cache,
                frontier.slot_ids,
                max_position=frontier.last_position(place - 2, memory.max_len),
            )[:, 0]
            drawing.draw(self.head.score(features))
        return drawing.finish()

    def follow(
        self,
        memory: HeadMemory,
        frontier: Frontier,
        positions: Tensor,
        emitted: Tensor,
        hidden: Sequence[Tensor],
    ) -> None:
        """Write the rows of all scored tokens; those of rejected ones do not count."""
        features = self.head.forward(
            self.head.read(hidden),
            emitted.clamp(min=0),
            positions,
            memory.cache,
            frontier.slot_ids,
            max_position=frontier.last_position(positions.shape[1] - 2, memory.max_len),
        )
        memory.keep(frontier.slot_ids, positions, features)

    def notice(self, verdicts: Sequence[Verdict]) -> None:
        """Warn once if almost nothing is accepted, unless the policy was set to that.

        A head that is loaded with a wrong switch does not fail: it drafts nonsense, and the output
        stays exact.
        """
        figures = self.first_drafts
        if figures is None or not self.policy.lossless:
            return
        for verdict in verdicts:
            if figures.num_drafts == NUM_DRAFTS:
                return
            figures.observe(verdict.num_draft_tokens, verdict.num_accepted)
            if figures.num_drafts == NUM_DRAFTS and figures.acceptance_rate < LEAST_RATE:
                _logger.warning(
                    "draft head: %.1f %% of the first %d drafts were accepted; check %s",
                    100 * figures.acceptance_rate,
                    NUM_DRAFTS,
                    self.head.what_to_check,
                )
