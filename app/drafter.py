"""The port of drafters, one that drafts nothing, and one that looks drafts up.

Drafters address their memory by slot and position, so rejecting a draft needs no operation.
"""

import sys
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch
from attrs import define, field, frozen
from torch import Tensor

from ..core import PADDING_TOKEN_ID, LanguageModel, SampleOutput, Scores
from ..core.checks import check_integer
from .frontier import Frontier, Known
from .verdicts import Verdict

CHUNK_LEN = 512
"""How many tokens of a prompt one forward takes; this bounds the memory for a long one."""


@frozen(eq=False, kw_only=True)
class Chunk:
    """A part of a prompt; the first decode step writes and scores the prompt's last token.

    Attributes:
        token_ids: [1, num_tokens] int64.
        next_ids: the token after each of them.
        positions: [1, num_tokens] int64; all before them have been entered.
        end: the first position after them.
    """

    slot_ids: Tensor
    token_ids: Tensor
    next_ids: Tensor
    positions: Tensor
    end: int

    @classmethod
    def of(cls, slot_id: int, prompt: Sequence[int], start: int, device: torch.device) -> "Chunk":
        """The chunk that begins at start."""
        end = min(start + CHUNK_LEN, len(prompt) - 1)
        token_ids = torch.tensor([prompt[start : end + 1]], dtype=torch.int64, device=device)
        return cls(
            slot_ids=torch.tensor([slot_id], device=device),
            token_ids=token_ids[:, :-1],
            next_ids=token_ids[:, 1:],
            positions=torch.arange(start, end, device=device)[None],
            end=end,
        )

    def enter(self, model: LanguageModel[Any], cache: Any, taps: Sequence[int] = ()) -> Scores:
        """Write it into a model's cache; only the hidden states of the result count."""
        return model.forward(
            self.token_ids,
            self.positions,
            cache,
            self.slot_ids,
            last_only=True,
            max_position=self.end - 1,
            taps=taps,
        )


@frozen(eq=False)
class Drawn:
    """The proposals of a drafter.

    Attributes:
        outputs: for each place ids of the target, -1 to end a draft early, and why there is none.
        logits: [num_slots, at least as many places, draft_vocab_size], that each token was drawn
            from; None if the policy does not need them or drafts have no probabilities.
        draft_to_target: [draft_vocab_size] int64, the target id of each place in `logits`; None
            where they are the same.
    """

    outputs: Sequence[SampleOutput] = ()
    logits: Tensor | None = None
    draft_to_target: Tensor | None = None

    @classmethod
    def on_host(cls, token_ids: Tensor) -> "Drawn":
        """Drafts that cannot fail; token_ids: [num_tokens, num_reqs] int64, contiguous."""
        status = torch.zeros(token_ids.shape[1], dtype=torch.int32, device=token_ids.device)
        return cls([SampleOutput(one, status, None) for one in token_ids])


Memory = TypeVar("Memory")


class Drafter(Protocol[Memory]):
    """Proposes draft tokens for a batch."""

    @property
    def num_spec_tokens(self) -> int:
        """The most tokens that it drafts."""

    @property
    def max_model_len(self) -> int:
        """The longest sequence that it can follow."""
        return sys.maxsize

    def new_memory(self, num_slots: int, max_len: int) -> Memory:
        """Allocate memory for num_slots sequences of at most max_len tokens."""

    @property
    def on_device(self) -> bool:
        """Whether it works on tensors alone, so that drafting can be captured in a graph.

        Otherwise it reads `Frontier.known` on the host.
        """
        return True

    @property
    def taps(self) -> tuple[int, ...]:
        """The target layers after which hidden states are wanted, see `LanguageModel`."""
        return ()

    def enter(self, memory: Memory, chunk: Chunk, hidden: Sequence[Tensor]) -> None:
        """Take in a part of a prompt, and the target's hidden states of it at each tap.

        These are [1, num_tokens, hidden_size].
        """
        return

    def clear(self, memory: Memory, slot_ids: Sequence[int]) -> None:
        """Forget slots whose sequences may have left NaN or infinity."""
        return

    def catch_up(self, memory: Memory, known: Known, draft_limits: Sequence[int]) -> None:
        """Get ready for a step on the host, with or without drafts; see `Frontier.of`."""
        return

    def draft(self, memory: Memory, frontier: Frontier, num_tokens: int) -> Drawn:
        """Draft num_tokens (at least one) for every request, or fewer."""

    def follow(
        self,
        memory: Memory,
        frontier: Frontier,
        positions: Tensor,
        emitted: Tensor,
        hidden: Sequence[Tensor],
    ) -> None:
        """Take in a step's scores and decisions; called without drafts, too.

        Args:
            memory, frontier: as they were for the drafts.
            positions: [num_reqs, num_scored] int64, those of the tokens that the target scored.
            emitted: [num_reqs, num_scored] int64, the token that follows each of them; -1 after the
                last known one.
            hidden: the target's hidden states at each tap, [num_reqs, num_scored, hidden_size].
        """
        return

    def notice(self, verdicts: Sequence[Verdict]) -> None:
        """Learn on the host which drafts of a step were accepted."""
        return


@frozen(eq=False)
class NoDrafter(Drafter[None]):
    """Plain decoding."""

    num_spec_tokens: int = field(default=0, init=False)

    def new_memory(self, num_slots: int, max_len: int) -> None:
        """No memory."""

    def draft(self, memory: None, frontier: Frontier, num_tokens: int) -> Drawn:
        """No drafts."""
        return Drawn()


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
    """Looks up, in the request's own text, what followed the last few tokens before.

    Prompt lookup decoding (Saxena, 2023), which also looks in the output. There is no model, so
    drafts have no probabilities; if nothing matches, there is no draft.
    """

    num_spec_tokens: int = 1
    max_ngram: int = 3
    min_ngram: int = 1
    on_device: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        check_integer("min_ngram", self.min_ngram, 1, self.max_ngram)

    def new_memory(self, num_slots: int, max_len: int = 0) -> list[TextIndex]:
        """An empty index for every slot."""
        sizes = range(self.max_ngram, self.min_ngram - 1, -1)
        return [TextIndex(sizes) for _ in range(num_slots)]

    def clear(self, memory: list[TextIndex], slot_ids: Sequence[int]) -> None:
        """Forget the text of slots."""
        for slot_id in slot_ids:
            (memory[slot_id],) = self.new_memory(1)

    def draft(self, memory: list[TextIndex], frontier: Frontier, num_tokens: int) -> Drawn:
        """Look up the end of every request."""
        rows = []
        for slot_id, known in frontier.known.items():
            found = memory[slot_id].follow(known, num_tokens)
            rows.append([*found, *[PADDING_TOKEN_ID] * (num_tokens - len(found))])
        device = frontier.lengths.device
        columns = list(zip(*rows, strict=True))
        return Drawn.on_host(torch.tensor(columns, dtype=torch.int64, device=device))
