"""What is the same for all calls that look alike, and the addresses that differ between these."""

from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from attrs import fields
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.sampling_tensors import SamplingTensors
from ...core.token_counts import TokenCounts
from .params import PLACES


@cache
def _values_of(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*(part.name for part in fields(kind)))


@cache
def _entered(kind: Any) -> Sequence[str]:
    return [part.name for part in fields(kind) if part.name in PLACES]


def look_of(
    batch: VerifyBatch | SampleBatch, params: SamplingTensors, policy: Policy | None
) -> Hashable:
    """The same for calls that one plan serves; `policy` is None for a draw.

    Parameters are known as objects, unless they are by slot, which are made anew in every step.
    """
    kind: Any = type(batch)
    device = batch.positions.device
    own = () if params.slot_ids is None else _params_look(params)
    return kind, policy, device, own, tuple(map(_look, _values_of(kind)(batch)))


def _look(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype
    return type(value) if isinstance(value, TokenCounts) else value


def _params_look(params: SamplingTensors) -> tuple[Hashable, ...]:
    parts: tuple[Any, ...] = params.target, params.draft, params.penalties, params.bias
    kinds: list[Any] = [type(part) for part in parts]
    values = [v for k, part in zip(kinds, parts, strict=True) if part for v in _values_of(k)(part)]
    own = params.seeds, params.logprobs_processed, params.num_logprobs
    return _look(params.slot_ids), *map(_place, (*own, *values))


def _place(value: Any) -> Hashable:
    return (value.data_ptr(), value.shape) if isinstance(value, Tensor) else value


def enter_addresses(
    words: "array[int]",
    batch: VerifyBatch | SampleBatch,
    params: SamplingTensors,
    id_map: Tensor | None,
    out: VerifyOutput | SampleOutput,
) -> None:
    """Enter what differs between calls that look alike; `id_map` is from the target's ids."""
    for owner in (batch, out, out.logprobs):
        _enter(words, owner)
    if words[PLACES["repetition"]]:
        _enter(words, batch.token_counts)
    others = {"entries": params.slot_ids, "draft_map": id_map}
    if isinstance(batch, SampleBatch):
        others = {**others, "target_logits": batch.logits, "draft_map": None, "target_map": id_map}
    for name, tensor in others.items():
        if tensor is not None:
            words[PLACES[name]] = tensor.data_ptr()


def _enter(words: "array[int]", owner: Any) -> None:
    kind: Any = type(owner)
    for name in () if owner is None else _entered(kind):
        value = getattr(owner, name)
        if isinstance(value, Tensor):
            words[PLACES[name]] = value.data_ptr()
