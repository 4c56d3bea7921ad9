"""The sampling parameters of a whole batch, as tensors on its device.

They are built on the host when requests enter or leave, not in every step. Host booleans (is
everything greedy, is there a filter) choose the kernels, so choosing needs no device
synchronisation. A request without a seed is an error.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from .checks import (
    INTEGERS,
    MAX_INT32,
    check_contiguous,
    check_device,
    check_flag,
    check_integer,
    check_kind,
    check_tensor,
)
from .errors import InvalidInputError
from .sampling_params import LogprobsMode, Recipe, SamplingParams
from .tensor_fields import mapped

# Engines make these values in every step, so checks of what fits are quick.
_RECIPE = dict.fromkeys(("temperature", "min_p", "top_p"), torch.float32) | {"top_k": torch.int32}
_FLAGS = ("any_greedy", "all_greedy", "any_min_p", "any_top_k", "any_top_p")
_flags_of = attrgetter(*_FLAGS)
_PENALTIES = dict.fromkeys(("repetition", "presence", "frequency"), torch.float32)
_BIAS = {"token_ids": torch.int64, "values": torch.float32}
_ENTRIES = {"seeds": torch.int64, "logprobs_processed": torch.bool}


def _check_each(name: str, values: Sequence[object], kind: type) -> None:
    check_kind(name, values, Sequence)
    for place, value in enumerate(values):
        if not isinstance(value, kind):
            check_kind(f"{name}[{place}]", value, kind)


def _check_alike(value: object, dtypes: Mapping[str, torch.dtype], num_dims: int = 1) -> None:
    """Check that a value's tensors are contiguous, with one shape, on one device."""
    shape: Sequence[int | None] = (None,) * num_dims
    device = None
    for name, dtype in dtypes.items():
        tensor = getattr(value, name)
        check_tensor(name, tensor, shape, (dtype,), device)
        if not tensor.is_contiguous():
            check_contiguous(name, tensor)
        if device is None:
            shape, device = tensor.shape, tensor.device


@frozen(eq=False)
class RecipeTensors:
    """A batch of `Recipe`: each tensor [num_reqs], filters at their neutral value when off.

    All tensors here are contiguous.

    Attributes:
        temperature: float32; 0 marks a greedy request.
        min_p: float32.
        top_k: int32, 0 when off.
        top_p: float32.
        any_greedy: some request is greedy.
        all_greedy: every request is greedy, so none needs a softmax.
        any_min_p, any_top_k, any_top_p: some request uses the filter.

    Raises:
        InvalidInputError: wrong shape, dtype, device or strides, or a flag that is no bool.
    """

    temperature: Tensor
    min_p: Tensor
    top_k: Tensor
    top_p: Tensor
    any_greedy: bool
    all_greedy: bool
    any_min_p: bool
    any_top_k: bool
    any_top_p: bool

    def __attrs_post_init__(self) -> None:
        _check_alike(self, _RECIPE)
        flags = _flags_of(self)
        if {*map(type, flags)} != {bool}:
            for name, flag in zip(_FLAGS, flags, strict=True):
                check_flag(name, flag)

    @classmethod
    def stack(cls, recipes: Sequence[Recipe], device: torch.device | str) -> "RecipeTensors":
        """The recipes of a batch, in its order.

        Raises:
            InvalidInputError: these are no recipes, or PyTorch knows no such device.
            UnavailableError: there is no such CUDA device.
        """
        _check_each("recipes", recipes, Recipe)
        device = check_device(device, any_type=True)
        sampled = [recipe for recipe in recipes if not recipe.is_greedy]
        return cls(
            temperature=_tensor([r.temperature for r in recipes], device),
            min_p=_tensor([r.min_p for r in recipes], device),
            top_k=_tensor([max(r.top_k, 0) for r in recipes], device, torch.int32),
            top_p=_tensor([r.top_p for r in recipes], device),
            any_greedy=len(sampled) < len(recipes),
            all_greedy=not sampled,
            any_min_p=any(r.min_p > 0 for r in sampled),
            any_top_k=any(r.top_k > 0 for r in sampled),
            any_top_p=any(r.top_p < 1 for r in sampled),
        )


@frozen(eq=False)
class PenaltyTensors:
    """A batch of penalties: each tensor [num_reqs] float32, neutral for requests without."""

    repetition: Tensor
    presence: Tensor
    frequency: Tensor

    def __attrs_post_init__(self) -> None:
        _check_alike(self, _PENALTIES)


@frozen(eq=False)
class BiasTensors:
    """Logit biases, at most one per token: int64 ids and float32 values, [num_reqs, max_entries].

    Unused ids are -1.
    """

    token_ids: Tensor
    values: Tensor

    def __attrs_post_init__(self) -> None:
        _check_alike(self, _BIAS, num_dims=2)


_PARTS = (
    ("target", RecipeTensors, "temperature"),
    ("draft", RecipeTensors, "temperature"),
    ("penalties", PenaltyTensors, "repetition"),
    ("bias", BiasTensors, "token_ids"),
)
"""The parts of `SamplingTensors`, each with its first tensor, which the others are like."""


@frozen(eq=False)
class SamplingTensors:
    """A batch of `SamplingParams`, one entry per request in the batch's order, or one per slot.

    An engine that keeps parameters by slot passes them as they are, and `slot_ids` says which entry
    belongs to which request: then every other tensor here is [num_slots], and nothing is gathered.
    Host booleans may cover all slots.

    Attributes:
        seeds: [num_reqs] int64, the seed's 64 bits (as two's complement above 2**63).
        target: how target logits become the target's law.
        draft: how draft logits become the law that drafts were drawn from.
        penalties: None when no request has any.
        bias: None when no request has any.
        num_logprobs: how many most likely tokens to report: the batch's maximum; None for none.
        logprobs_processed: [num_reqs] bool, True where logprobs are from processed logits.
        slot_ids: [num_reqs] int, each request's entry; None means request i has entry i.

    Raises:
        InvalidInputError: wrong shape, dtype, device or strides, or a wrong num_logprobs.
    """

    seeds: Tensor
    target: RecipeTensors
    draft: RecipeTensors
    penalties: PenaltyTensors | None
    bias: BiasTensors | None
    num_logprobs: int | None
    logprobs_processed: Tensor
    slot_ids: Tensor | None = None

    def __attrs_post_init__(self) -> None:
        _check_alike(self, _ENTRIES)
        num_entries, device = self.seeds.shape[0], self.seeds.device
        for name, kind, first in _PARTS:
            part = getattr(self, name)
            if part is not None or kind is RecipeTensors:
                if not isinstance(part, kind):
                    check_kind(name, part, kind)
                tensor = getattr(part, first)
                if tensor.shape[0] != num_entries or tensor.device != device:
                    shape = (num_entries, *tensor.shape[1:])
                    check_tensor(f"{name}.{first}", tensor, shape, (tensor.dtype,), device)
        if self.num_logprobs is not None:
            check_integer("num_logprobs", self.num_logprobs, 0, MAX_INT32)
        if self.slot_ids is not None:
            check_tensor("params.slot_ids", self.slot_ids, (None,), INTEGERS, device)
            check_contiguous("slot_ids", self.slot_ids)

    @property
    def num_reqs(self) -> int:
        """How many requests these parameters are for."""
        return (self.seeds if self.slot_ids is None else self.slot_ids).shape[0]

    @property
    def device(self) -> torch.device:
        """The device of all of these tensors."""
        return self.seeds.device

    def by_request(self) -> "SamplingTensors":
        """The same parameters with one entry per request, in the batch's order."""
        if self.slot_ids is None:
            return self
        own = self.slot_ids.long()
        by_request: SamplingTensors = mapped(evolve(self, slot_ids=None), lambda kept: kept[own])
        return by_request

    @classmethod
    def stack(
        cls, params: Sequence[SamplingParams], device: torch.device | str = "cpu"
    ) -> "SamplingTensors":
        """The parameters of a batch, in its order; each request has a seed.

        Raises:
            InvalidInputError: these are no parameters, a request has no seed, or PyTorch knows no
                such device.
            UnavailableError: there is no such CUDA device.
        """
        _check_each("params", params, SamplingParams)
        device = check_device(device, any_type=True)
        wanted = [p.logprobs for p in params if p.logprobs is not None]
        return cls(
            seeds=_tensor([_signed_seed(i, p) for i, p in enumerate(params)], device, torch.int64),
            target=RecipeTensors.stack(params, device),
            draft=RecipeTensors.stack([p.draft_recipe for p in params], device),
            penalties=_stack_penalties(params, device),
            bias=_stack_bias(params, device),
            num_logprobs=max(wanted) if wanted else None,
            logprobs_processed=_tensor(
                [p.logprobs_mode is LogprobsMode.PROCESSED for p in params], device, torch.bool
            ),
        )


def _tensor(
    values: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


def _signed_seed(index: int, params: SamplingParams) -> int:
    if params.seed is None:
        raise InvalidInputError(
            f"params[{index}].seed: expected a seed, got None; SamplingParams.with_seed gives one"
        )
    return params.seed - 2**64 if params.seed >= 2**63 else params.seed


def _stack_penalties(
    params: Sequence[SamplingParams], device: torch.device
) -> PenaltyTensors | None:
    if not any(p.has_penalties for p in params):
        return None
    return PenaltyTensors(
        repetition=_tensor([p.repetition_penalty for p in params], device),
        presence=_tensor([p.presence_penalty for p in params], device),
        frequency=_tensor([p.frequency_penalty for p in params], device),
    )


def _stack_bias(params: Sequence[SamplingParams], device: torch.device) -> BiasTensors | None:
    width = max((len(p.logit_bias) for p in params), default=0)
    if width == 0:
        return None
    padded = [[*p.logit_bias, *[(-1, 0.0)] * (width - len(p.logit_bias))] for p in params]
    return BiasTensors(
        token_ids=_tensor(
            [[token_id for token_id, _ in row] for row in padded], device, torch.int64
        ),
        values=_tensor([[value for _, value in row] for row in padded], device),
    )
