"""What an engine is made of, its limits, and the uses of its memory, before that is allocated."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from attrs import asdict, frozen
from torch.overrides import TorchFunctionMode

from ...core import SamplingParams, SamplingTensors, TokenCounts, VerifyBatch
from ...core.policies.parameters import integer
from ...core.tensor_fields import leaves
from ..decode import DecodeStep, Models
from ..request_state import Detokenizer
from .cuda_graphs import new_runner, padded
from .out_of_memory import in_words
from .runner import EagerRunner, Runner

MAX_SLOTS = 2**16
"""Far beyond what a step can hold: a typing error must not fill the memory."""


@frozen(eq=False, kw_only=True)
class Parts(Models):
    """Models, and functions that turn their tokens into text and back.

    Attributes:
        encode: turns a text into token ids; None without a tokenizer.
    """

    eos_token_ids: frozenset[int]
    new_detokenizer: Callable[[], Detokenizer]
    encode: Callable[[str], Sequence[int]] | None = None
    new_runner: Callable[[DecodeStep], Runner] = new_runner


@frozen(kw_only=True)
class Limits:
    """The limits of memory, and of prompts between two decode steps.

    Attributes:
        num_slots: how many requests run at once; others wait.
        max_len: how many tokens a request may have, prompt and output together; None for the
            target's context.
        prefill_tokens: prompt tokens that are entered between two decode steps, rounded up to a
            request's chunk; running requests wait that long for their next token.

    Raises:
        InvalidInputError: a number is out of its range.
    """

    num_slots: int = integer(16, 1, MAX_SLOTS)
    max_len: int | None = integer(None, 1)
    prefill_tokens: int = integer(2048, 1)


GRAPH_BYTES = 8 * 2**20
"""An estimate for each size of batch."""


@frozen(kw_only=True)
class MemoryPlan:
    """Bytes on the target's device.

    Attributes:
        draft_memory: the drafter's cache, and logits of drafts.
        token_counts: allocated with the first request that has penalties.
        step: logits and workspace of the largest step.
        graphs: an estimate; allocated with the first batch of each size; 0 on a CPU.
    """

    weights: int
    target_cache: int
    draft_memory: int
    token_counts: int
    step: int
    graphs: int

    @classmethod
    def of(cls, parts: Parts, num_slots: int, max_len: int | None) -> "MemoryPlan":
        """The plan of an engine with these limits; allocates nothing."""
        target, length = parts.target, max_len or parts.target.max_model_len
        with OnMeta():
            target_cache = target.new_cache(num_slots + 1, length)
            draft_memory = parts.drafter.new_memory(num_slots + 1, length)
            token_counts = TokenCounts.empty(num_slots + 1, target.vocab_size, target.device)
        is_captured = target.device.type == "cuda" and parts.new_runner is not EagerRunner
        return cls(
            weights=num_bytes((target, parts.drafter)),
            target_cache=num_bytes(target_cache),
            draft_memory=num_bytes(draft_memory),
            token_counts=num_bytes(token_counts),
            step=_step_bytes(parts, num_slots),
            graphs=GRAPH_BYTES * len({padded(n + 1) for n in range(num_slots)}) * is_captured,
        )

    @property
    def total(self) -> int:
        """The sum."""
        return sum(asdict(self).values())

    def __str__(self) -> str:
        sizes = asdict(self).items()
        parts = (f"{name.replace('_', ' ')} {in_words(size)}" for name, size in sizes)
        return f"{in_words(self.total)}: {', '.join(parts)}"


def _step_bytes(parts: Parts, num_reqs: int) -> int:
    num_tokens, target, meta = parts.drafter.num_spec_tokens, parts.target, torch.device("meta")
    shape = (num_reqs, num_tokens + 1, target.vocab_size)
    logits = torch.empty(shape, dtype=target.dtype, device=meta)
    batch = VerifyBatch.dense(
        target_logits=logits,
        draft_token_ids=torch.empty((num_reqs, num_tokens), dtype=torch.int64, device=meta),
        positions=torch.empty(num_reqs, dtype=torch.int64, device=meta),
        draft_logits=logits if num_tokens and parts.policy.uses_draft_probs else None,
    )
    # A recipe that needs everything that a sampler can need.
    params = SamplingTensors.stack([SamplingParams(seed=0, top_p=0.5)] * num_reqs, meta)
    return logits.nbytes + parts.sampler.verify_workspace_size(batch, params, parts.policy)


class OnMeta(TorchFunctionMode):
    """Within it, tensors made for a device have a shape, but no memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch's, for the device meta."""
        given = dict(kwargs or {})
        if given.get("device") is not None:
            given["device"] = "meta"
        return func(*args, **given)


def num_bytes(holder: object) -> int:
    """The bytes of all tensors that an object holds; memory that several share counts once."""
    held = [leaf for _, leaf in leaves(holder)]
    modules = [leaf for leaf in held if isinstance(leaf, torch.nn.Module)]
    tensors = chain(held, *((*one.parameters(), *one.buffers()) for one in modules))
    storages = [one.untyped_storage() for one in tensors if isinstance(one, torch.Tensor)]
    # The only identity of storage on meta.
    return sum({one._cdata: one.nbytes() for one in storages}.values())  # noqa: SLF001
