"""Drafts looked up in the request's own text: what followed the last few tokens before.

Prompt lookup decoding (Saxena, 2023), which also looks in the output. There is no model, so drafts
have no probabilities; if nothing matches, there is no draft.
"""

from collections.abc import Sequence

import torch
from attrs import define, field, frozen

from ..core import PADDING_TOKEN_ID
from ..core.checks import check_integer
from .drafter import Drafter, Drawn
from .frontier import Frontier


@define(eq=False)
class TextIndex:
    """The last place of each sequence of a few tokens that has a successor.

    Attributes:
        sizes: the lengths of sequences to look up, longest first.
    """

    sizes: Sequence[int]
    _followers: dict[tuple[int, ...], int] = field(factory=dict)
    _num_indexed: int = 0

    def follow(self, token_ids: Sequence[int], num_tokens: int) -> Sequence[int]:
        """The tokens that followed an earlier copy of these tokens' end; the list only grows."""
        for place in range(self._num_indexed, len(token_ids)):
            for size in self.sizes:
                if size <= place:
                    self._followers[tuple(token_ids[place - size : place])] = place
        self._num_indexed = len(token_ids)
        for size in self.sizes:
            # A text this short was never followed by anything.
            follower = self._followers.get(tuple(token_ids[-size:]))
            if follower is not None:
                return token_ids[follower : follower + num_tokens]
        return ()


@frozen(eq=False, kw_only=True)
class NgramDrafter(Drafter[list[TextIndex]]):
    """A `Drafter` without a model."""

    num_spec_tokens: int = 1
    max_ngram: int = 3
    min_ngram: int = 1
    on_device: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        check_integer("min_ngram", self.min_ngram, 1, self.max_ngram)

    def new_memory(self, num_slots: int, max_len: int) -> list[TextIndex]:  # noqa: ARG002, grows
        """An empty index for every slot."""
        return [self._new_index() for _ in range(num_slots)]

    def clear(self, memory: list[TextIndex], slot_ids: Sequence[int]) -> None:
        """Forget the text of slots."""
        for slot_id in slot_ids:
            memory[slot_id] = self._new_index()

    def draft(self, memory: list[TextIndex], frontier: Frontier, num_tokens: int) -> Drawn:
        """Look up the end of every request."""
        rows = []
        for slot_id, known in frontier.known.items():
            found = memory[slot_id].follow(known, num_tokens)
            rows.append([*found, *[PADDING_TOKEN_ID] * (num_tokens - len(found))])
        device = frontier.lengths.device
        columns = list(zip(*rows, strict=True))
        return Drawn.on_host(torch.tensor(columns, dtype=torch.int64, device=device))

    def _new_index(self) -> TextIndex:
        return TextIndex(range(self.max_ngram, self.min_ngram - 1, -1))
