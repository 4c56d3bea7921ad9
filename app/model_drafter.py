"""Drafts from a second, smaller model, whose vocabulary may differ from the target's.

Only tokens that both have are drafted: the draft model's logits are cut to them before a token is
drawn and before they are kept for verification, raw and in the model's dtype, so both use the same
law. Whatever the model reads, the law stays consistent, so a target token that it lacks may be read
as any other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from ..adapters.error_text import unfit
from ..core import InvalidInputError, LanguageModel
from ..core.checks import check_integers
from ..core.policies.parameters import derived
from .drafter import CHUNK_LEN, Chunk, Drawn
from .drawing import Drawing, DrawingDrafter, ModelMemory
from .frontier import Frontier, Known


@frozen(eq=False, kw_only=True)
class DraftVocabulary:
    """The tokens that a draft model and its target share.

    Attributes:
        draft_ids: [num_shared] int64, their ids in the draft model.
        draft_to_target: [num_shared] int64, their ids in the target, in the same order.
        target_to_draft: [target_vocab_size] int64, the id that the draft model reads for each
            token of the target.
    """

    draft_ids: Tensor
    draft_to_target: Tensor
    target_to_draft: Tensor
    target_vocab_size: int = derived(lambda self: len(self.target_to_draft))

    @classmethod
    def of(
        cls,
        target_ids: Mapping[int, int],
        target_vocab_size: int,
        *,
        unknown_id: int = 0,
        device: torch.device | None = None,
    ) -> "DraftVocabulary":
        """Map the vocabulary of a draft model.

        Args:
            target_ids: draft id -> target id of every token that both have.
            unknown_id: the draft id that stands for tokens that the draft model lacks.

        Raises:
            InvalidInputError: no token is shared, or two share a target id, or an id is not in the
                target's vocabulary.
        """
        different = set(target_ids.values())
        if not target_ids or len(different) < len(target_ids):
            expected = "one target id for each of at least one draft id"
            got = f"{len(target_ids)} draft ids and {len(different)} target ids"
            raise unfit("target_ids", expected, got, InvalidInputError)
        check_integers("target_ids", tuple(different), 0, target_vocab_size - 1)
        draft_ids, shared = torch.tensor(sorted(target_ids.items())).T.contiguous()
        target_to_draft = torch.full((target_vocab_size,), unknown_id)
        target_to_draft[shared] = draft_ids
        return cls(
            draft_ids=draft_ids.to(device),
            draft_to_target=shared.to(device),
            target_to_draft=target_to_draft.to(device),
        )


def shared_target_ids(draft: Mapping[str, int], target: Mapping[str, int]) -> dict[int, int]:
    """Draft id -> target id of each token that two vocabularies, token -> id, spell alike."""
    return {draft[token]: target[token] for token in draft.keys() & target.keys()}


@frozen(eq=False, kw_only=True)
class ModelDrafter(DrawingDrafter[ModelMemory]):
    """A `Drafter` that decodes with a model of its own.

    Attributes:
        vocabulary: the model's, if its ids are not the target's.
    """

    model: LanguageModel[Any]
    vocabulary: DraftVocabulary | None = None
    max_model_len: int = derived(lambda self: self.model.max_model_len)
    draft_to_target: Tensor | None = derived(
        lambda self: self.vocabulary and self.vocabulary.draft_to_target
    )
    target_vocab_size: int | None = derived(
        lambda self: self.vocabulary and self.vocabulary.target_vocab_size
    )

    def new_memory(self, num_slots: int, max_len: int) -> ModelMemory:
        """Allocate a cache and, if the policy needs the drafts' law, memory for logits."""
        own = self.vocabulary
        vocab_size = self.model.vocab_size if own is None else len(own.draft_ids)
        return ModelMemory(**self.room(self.model, vocab_size, num_slots, max_len))

    def enter(self, memory: ModelMemory, chunk: Chunk, hidden: Sequence[Tensor]) -> None:  # noqa: ARG002
        """Write the prompt into the cache, as far as the draft model can follow."""
        num_left = chunk.token_ids.shape[1] - max(0, chunk.end - memory.max_len + 1)
        if num_left > 0:
            token_ids, positions = chunk.token_ids[:, :num_left], chunk.positions[:, :num_left]
            end = min(chunk.end, memory.max_len - 1)
            chunk = evolve(chunk, token_ids=self._read(token_ids), positions=positions, end=end)
            chunk.enter(self.model, memory.cache)

    def clear(self, memory: ModelMemory, slot_ids: Sequence[int]) -> None:
        """Forget slots of the cache."""
        self.model.clear(memory.cache, slot_ids)
        for slot_id in slot_ids:
            memory.unread.pop(slot_id, None)

    def catch_up(self, memory: ModelMemory, known: Known, draft_limits: Sequence[int]) -> None:
        """Read the tokens of steps without drafts, for which the model did not run."""
        has_drafts = any(draft_limits)
        for (slot_id, token_ids), limit in zip(known.items(), draft_limits, strict=True):
            # A draft reads the last two itself.
            end = len(token_ids) - 2
            if not has_drafts:
                memory.unread.setdefault(slot_id, max(end, 0))
            elif limit:
                for start in range(memory.unread.pop(slot_id, end), end, CHUNK_LEN):
                    chunk = Chunk.of(slot_id, token_ids[:-1], start, self.model.device)
                    self.enter(memory, chunk, ())

    def draft(self, memory: ModelMemory, frontier: Frontier, num_tokens: int) -> Drawn:
        """Draw one token after the other.

        The first forward takes the last two known tokens. Both are new to the cache if the last
        draft was accepted completely, else one is: so no case is special.
        """
        drawing = Drawing(self, frontier, memory, num_tokens)
        for place in range(num_tokens):
            drawing.draw(self._score(drawing, place))
        return drawing.finish()

    def _score(self, drawing: Drawing, place: int) -> Tensor:
        frontier, memory = drawing.frontier, drawing.memory
        token_ids = drawing.last_token_ids if place else frontier.last_token_ids
        logits = self.model.forward(
            self._read(token_ids),
            drawing.fed[:, place + (place > 0) : place + 2],
            memory.cache,
            frontier.slot_ids,
            last_only=True,
            max_position=frontier.last_position(place - 1, memory.max_len),
        ).logits[:, -1]
        if self.vocabulary is not None:
            logits = logits.index_select(1, self.vocabulary.draft_ids)
        return logits

    def _read(self, token_ids: Tensor) -> Tensor:
        """The model's ids of target tokens."""
        own = self.vocabulary
        return token_ids if own is None else own.target_to_draft[token_ids]
