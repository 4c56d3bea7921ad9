"""The ports: what the core expects of samplers and models, and what models say about tokens."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from attrs import frozen
from torch import Tensor

from .batch import SampleBatch, VerifyBatch
from .output import SampleOutput, VerifyOutput
from .policies.policy import Policy
from .sampling_tensors import SamplingTensors


@frozen(eq=False)
class Scores:
    """The result of `LanguageModel.forward`.

    Attributes:
        logits: [num_reqs, num_tokens, vocab_size] in the model's dtype, or [num_reqs, 1, …].
        hidden: for each tap, the hidden states after that many layers, before any later norm:
            [num_reqs, num_tokens, hidden_size] in the model's dtype.
    """

    logits: Tensor
    hidden: tuple[Tensor, ...] = ()


class Sampler(Protocol):
    """Decides which draft tokens survive. Every backend is one of these and returns the same.

    Calls work in a workspace: a one-dimensional uint8 tensor, 16-byte aligned, on the batch's
    device. It is zero when first used, and every completed call leaves it usable for the next, of
    any kind, on the same stream. Its owner must zero it after a call that failed.

    Both verbs raise `InvalidInputError` when batch, parameters, `out` and workspace do not fit
    together, before any work and without waiting for the device; `verify` raises
    `UnavailableError` for a policy that the backend lacks.
    """

    def verify(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        out: VerifyOutput | None = None,
        workspace: Tensor | None = None,
    ) -> VerifyOutput:
        """Accept a part of every draft and add one recovered or bonus token.

        Args:
            batch: the models' logits and the drafts.
            params: the requests' parameters, in the batch's order.
            policy: the law by which draft tokens survive.
            out: the output, see `empty_verify_output`; allocated when None, else returned.
            workspace: [at least `verify_workspace_size`] uint8; the backend's own when None.
        """

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        out: SampleOutput | None = None,
        workspace: Tensor | None = None,
    ) -> SampleOutput:
        """Draw one token per request: plain decoding, or one step of drafting.

        `out` and `workspace` are as in `verify`.
        """

    def verify_workspace_size(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy
    ) -> int:
        """How many bytes of workspace `verify` needs; it looks at no values."""
        return 0

    def sample_workspace_size(self, batch: SampleBatch, params: SamplingTensors) -> int:
        """How many bytes of workspace `sample` needs; it looks at no values."""
        return 0


Cache = TypeVar("Cache")


class SlotModel(Protocol[Cache]):
    """A model whose KV cache is addressed by slot and position.

    Rejecting a draft needs no operation: the next forward overwrites the same positions.
    """

    @property
    def vocab_size(self) -> int:
        """The width of its logits."""

    @property
    def max_model_len(self) -> int:
        """The most positions that a sequence may have."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its logits."""

    @property
    def device(self) -> torch.device:
        """The device that it computes on."""

    def new_cache(self, num_slots: int, max_len: int) -> Cache:
        """Room for max_len positions in each of num_slots slots."""

    def clear(self, cache: Cache, slot_ids: Sequence[int]) -> None:
        """Forget slots; needed before reuse only if their sequences left NaN or infinity."""


class LanguageModel(SlotModel[Cache], Protocol[Cache]):
    """A decoder."""

    @property
    def forward_name(self) -> str:
        """The name of its decode steps' forward, `triton`, `torch` or another one."""

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: Cache,
        slot_ids: Tensor,
        *,
        last_only: bool = False,
        max_position: int | None = None,
        taps: Sequence[int] = (),
    ) -> Scores:
        """Score tokens after writing their keys and values at (slot, position).

        Each token sees its slot's positions up to its own; what lies after them does not matter.

        Args:
            token_ids: [num_reqs, num_tokens] int64, in the vocabulary.
            positions: [num_reqs, num_tokens] int64, absolute.
            cache: from `new_cache`.
            slot_ids: [num_reqs] int64.
            last_only: score only the last token of each request.
            max_position: the highest of the positions, if the caller knows it without asking the
                device.
            taps: after how many layers hidden states are wanted; 0 for the embeddings.
        """
