"""Draws draft tokens from raw logits, which are kept for verification; and a workspace for that."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor

from ..backends import load_sampler
from ..core import Policy, Probabilistic, SampleBatch, SampleOutput, Sampler
from .drafter import Drafter, Drawn, Memory
from .frontier import Frontier


@define(eq=False)
class Workspace:
    """A workspace as large as the largest call so far needed; all calls use one stream."""

    # The last is the largest; captured graphs may still use earlier ones.
    _tensors: list[Tensor] = field(factory=list, init=False)

    @contextmanager
    def for_call(self, num_bytes: int, device: torch.device) -> Iterator[Tensor]:
        """[at least num_bytes] uint8 for one call, as `Sampler` expects it."""
        if not self._tensors or len(self._tensors[-1]) < num_bytes:
            self._tensors.append(torch.zeros(num_bytes, dtype=torch.uint8, device=device))
        try:
            yield self._tensors[-1]
        except BaseException:
            # Launched kernels have left counts there that would make later calls write out of
            # bounds. An error of the device here would hide the one that broke the call off.
            with suppress(RuntimeError):
                self._tensors[-1].zero_()
            raise


@frozen(eq=False, kw_only=True)
class ModelMemory:
    """The memory of a model that drafts.

    Attributes:
        logits: [num_slots, num_spec_tokens, draft_vocab_size] in the model's dtype, the raw logits
            of the current draft; None if the policy does not need them.
        unread: slot -> the first token that the model may lack, after steps without drafts.
    """

    cache: Any
    max_len: int
    logits: Tensor | None
    workspace: Workspace = field(factory=Workspace)
    unread: dict[int, int] = field(factory=dict, init=False)


@frozen(eq=False, kw_only=True)
class DrawingDrafter(Drafter[Memory]):
    """A `Drafter` that draws token after token from logits.

    `acceptor.app.wiring.with_settings` replaces the first three defaults; the other two are as in
    `SampleBatch`.
    """

    sampler: Sampler = field(factory=lambda: load_sampler("reference"))
    policy: Policy = Probabilistic()
    num_spec_tokens: int = 1
    draft_to_target: Tensor | None = None
    target_vocab_size: int | None = None

    def room(self, model: Any, vocab_size: int, num_slots: int, max_len: int) -> dict[str, Any]:
        """The fields of a `ModelMemory` for a model or head that draws from so many tokens."""
        max_len, logits = min(max_len, model.max_model_len), None
        if self.policy.uses_draft_probs:
            shape = (num_slots, self.num_spec_tokens, vocab_size)
            logits = torch.zeros(shape, dtype=model.dtype, device=model.device)
        return {"cache": model.new_cache(num_slots, max_len), "max_len": max_len, "logits": logits}


@frozen(eq=False)
class Drawing:
    """Draws one draft, place after place.

    Attributes:
        fed: [num_reqs, num_tokens + 1], from the second-last known token on.
    """

    drafter: DrawingDrafter[Any]
    frontier: Frontier
    memory: ModelMemory
    num_tokens: int
    fed: Tensor = field(init=False)
    drawn: list[SampleOutput] = field(factory=list, init=False)

    @fed.default
    def _places_to_feed(self) -> Tensor:
        lengths = self.frontier.lengths
        ahead = torch.arange(-2, self.num_tokens - 1, device=lengths.device)
        # Clamps positions that a prompt of one token lacks, and those of drafts that are cut.
        return (lengths[:, None] + ahead).clamp(0, self.memory.max_len - 1)

    def draw(self, logits: Tensor) -> None:
        """Draw the next token of each request from [num_reqs, draft_vocab_size]."""
        place, params = len(self.drawn), self.frontier.params
        sampler, ids = self.drafter.sampler, self.drafter.draft_to_target
        if self.memory.logits is not None:
            self.memory.logits[self.frontier.slot_ids, place] = logits
        batch = SampleBatch(
            logits=logits,
            positions=self.frontier.lengths + place,
            draft_index=place + 1,
            draft_stream=self.drafter.policy.draft_stream,
            draft_to_target=ids,
            target_vocab_size=None if ids is None else self.drafter.target_vocab_size,
        )
        num_bytes = sampler.sample_workspace_size(batch, params)
        with self.memory.workspace.for_call(num_bytes, logits.device) as workspace:
            self.drawn.append(sampler.sample(batch, params, workspace=workspace))

    @property
    def last_token_ids(self) -> Tensor:
        """[num_reqs, 1] int64, the tokens drawn last, for a model to read."""
        # A token that was not drawn is -1: any id will do, as nothing after it counts.
        return self.drawn[-1].token_ids[:, None].clamp(min=0)

    def finish(self) -> Drawn:
        """The whole draft."""
        return Drawn(self.drawn, self.memory.logits, self.drafter.draft_to_target)
