"""`acceptor::verify` and `acceptor::sample`, with the shapes of their results.

An operator takes only text and tensors. So what stays the same between steps (backend, policy,
which filters are on) comes as text, made of attrs classes, tuples, numbers, strings and None;
everything on the device comes as tensors. Only loaded samplers are kept between calls.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from typing import Any

import attrs
import torch
from torch import Tensor

from ...core import InvalidInputError, SampleBatch, Sampler, Stream, TokenCounts, VerifyBatch
from ...core.call_memory import empty_sample_output, empty_verify_output
from ...core.tensor_fields import named_tensors
from ..registry import load_sampler

Given = list[Tensor | None]
"""The tensors of a batch, in the order of `VERIFY` or `SAMPLE`."""

VERIFY = (
    *("target_logits", "cu_num_logits", "draft_token_ids", "positions", "draft_logits"),
    *("slot_ids", "draft_to_target", "prompt_mask", "output_counts"),
    *("allowed_tokens", "allowed_rows"),
)
SAMPLE = (
    *("logits", "positions", "slot_ids", "draft_to_target", "prompt_mask", "output_counts"),
    *("allowed_tokens", "allowed_rows"),
)


@torch.library.custom_op("acceptor::verify", mutates_args=())
def verify(call: str, param_tensors: list[Tensor], given: Given) -> list[Tensor]:
    """See `VerifyOperator`."""
    sampler = _sampler(_facts(call)["backend"])
    return _tensors(sampler.verify(*_arguments(call, param_tensors, given)))


@verify.register_fake
def _(call: str, param_tensors: list[Tensor], given: Given) -> list[Tensor]:
    return _tensors(empty_verify_output(*_arguments(call, param_tensors, given)))


@torch.library.custom_op("acceptor::sample", mutates_args=())
def sample(call: str, param_tensors: list[Tensor], given: Given) -> list[Tensor]:
    """See `SampleOperator`."""
    sampler = _sampler(_facts(call)["backend"])
    return _tensors(sampler.sample(*_arguments(call, param_tensors, given)))


@sample.register_fake
def _(call: str, param_tensors: list[Tensor], given: Given) -> list[Tensor]:
    return _tensors(empty_sample_output(*_arguments(call, param_tensors, given)))


def _arguments(call: str, param_tensors: list[Tensor], given: Given) -> tuple[Any, ...]:
    """The batch, the parameters and, for a verification, the policy."""
    facts = _facts(call)
    params = rebuild(facts["params"], param_tensors)
    if "policy" in facts:
        return VerifyBatch(**_fields(VERIFY, given)), params, rebuild(facts["policy"], [])
    batch = SampleBatch(
        draft_index=facts["draft_index"],
        draft_stream=Stream(facts["draft_stream"]),
        target_vocab_size=facts["target_vocab_size"],
        **_fields(SAMPLE, given),
    )
    return batch, params


def _fields(names: Sequence[str], given: Given) -> dict[str, Any]:
    """The fields of a batch, whose token counts came as two tensors."""
    fields: dict[str, Any] = dict(zip(names, given, strict=True))
    prompt_mask, output_counts = fields.pop("prompt_mask"), fields.pop("output_counts")
    if prompt_mask is not None or output_counts is not None:
        fields["token_counts"] = TokenCounts(prompt_mask, output_counts)
    return fields


@lru_cache(maxsize=1024)
def _facts(call: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(call)
    return facts


@lru_cache
def _sampler(backend: str) -> Sampler:
    return load_sampler(backend)


def _tensors(output: object) -> list[Tensor]:
    return [tensor for _, tensor in named_tensors(output)]


def described(operator: Any) -> tuple[str, list[Tensor]]:
    """All that an operator is bound to, as text and tensors."""
    tensors: list[Tensor] = []
    bound = (part.name for part in attrs.fields(type(operator)) if part.init)
    return json.dumps({name: describe(getattr(operator, name), tensors) for name in bound}), tensors


def describe(value: object, tensors: list[Tensor]) -> Any:
    """Describe a value in JSON's types; its tensors are appended to the list.

    Raises:
        InvalidInputError: the value holds something that is neither.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, tuple):
        return [describe(part, tensors) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = type(value)
    # A class inside a function cannot be imported.
    if not attrs.has(kind) or "<locals>" in kind.__qualname__:
        raise InvalidInputError(
            f"operators: expected an importable attrs class or a number, got {value!r}"
        )
    fields = {
        attribute.name: describe(getattr(value, attribute.name), tensors)
        for attribute in attrs.fields(kind)
    }
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": fields}


def rebuild(description: Any, tensors: list[Tensor]) -> Any:
    """Rebuild the value that `describe` was given."""
    if isinstance(description, list):
        return tuple(rebuild(part, tensors) for part in description)
    if not isinstance(description, dict):
        return description
    if "tensor" in description:
        return tensors[description["tensor"]]
    module, _, name = description["class"].partition(":")
    fields = {key: rebuild(part, tensors) for key, part in description["fields"].items()}
    return attrgetter(name)(import_module(module))(**fields)
