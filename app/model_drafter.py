"""Drafts from a second, smaller model.

The logits that a token was drawn from are kept unchanged: raw, in the model's dtype, and cut to the
tokens that the target has, too.
"""

from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen
from torch import Tensor

from ..core import LanguageModel
from ..core.policies.parameters import derived
from .draft_vocabulary import DraftVocabulary
from .drafter import Drawn
from .drawing import Drawing, DrawingDrafter, ModelMemory
from .frontier import Frontier
from .prefill import Chunk, prefill


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
        max_len = min(max_len, self.model.max_model_len)
        own = self.vocabulary
        vocab_size = self.model.vocab_size if own is None else len(own.draft_ids)
        return ModelMemory(
            cache=self.model.new_cache(num_slots, max_len),
            max_len=max_len,
            logits=self.room(num_slots, vocab_size, self.model),
        )

    def enter(self, memory: ModelMemory, chunk: Chunk, hidden: Sequence[Tensor]) -> None:  # noqa: ARG002
        """Write the prompt into the cache, as far as the draft model can follow."""
        chunk = evolve(chunk, end=min(chunk.end, memory.max_len - 1))
        if chunk.start < chunk.end:
            prefill(self.model, memory.cache, chunk, self._read)

    def clear(self, memory: ModelMemory, slot_ids: Sequence[int]) -> None:
        """Forget slots of the cache."""
        self.model.clear(memory.cache, slot_ids)

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
