"""Calls that have been made before, by everything that their kernels were compiled for.

The first call of a kind goes through Triton's own launcher, which compiles and takes some 20 µs
per kernel; later ones hand addresses to the kernels that it left. This module refuses to launch
for the first time.
"""

from collections.abc import Callable, Iterable
from typing import Any

from attrs import define
from torch import Tensor
from triton.runtime import driver

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import SampleOutput, VerifyOutput
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from .arguments import Variant
from .plan import Plan

Launcher = Callable[..., Any]


@define(eq=False)
class KnownCall:
    """What is known about a kind of call: its plan and, once it has run, its compiled kernels."""

    plan: Plan
    variant: Variant
    compiled: tuple[Any, ...] | None = None


class Recorder:
    """A launcher that keeps what another returns: the compiled kernels, in order."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._compiled: list[Any] = []

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], *args: object, **options: object
    ) -> None:
        """Launch, and remember what was launched."""
        self._compiled.append(self._launch(kernel, grid, *args, **options))

    @property
    def compiled(self) -> tuple[Any, ...] | None:
        """The kernels, None if the launcher does not return them."""
        if all(hasattr(kernel, "packed_metadata") for kernel in self._compiled):
            return tuple(self._compiled)
        return None


def replay(compiled: Iterable[Any], device_index: int) -> Launcher:
    """A launcher for the same kernels in the same order, whose tensors are given as addresses."""
    stream = current_stream(device_index)
    following = iter(compiled)

    def launch(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> None:
        known = next(following)
        constants = [options[name] for name in kernel.arg_names[len(args) :]]
        known.run(
            grid[0],
            grid[1] if len(grid) > 1 else 1,
            1,
            stream,
            known.function,
            known.packed_metadata,
            None,
            None,
            None,
            *args,
            *constants,
        )

    return launch


def current_stream(device_index: int) -> int:
    """The stream that is current on a device, as the driver knows it."""
    stream: int = driver.active.get_current_stream(device_index)
    return stream


def verify_kind(
    batch: VerifyBatch,
    params: SamplingTensors,
    policy: object,
    workspace: Tensor | None,
    out: VerifyOutput | None,
) -> tuple[object, ...]:
    """All that the checks, the plan and the kernels of a `verify` depend on, addresses aside."""
    counts = batch.token_counts
    return (
        policy,
        batch.target_logits.device,
        _form(batch.target_logits),
        batch.cu_num_logits.dtype,
        _form(batch.draft_token_ids),
        batch.positions.dtype,
        _form(batch.draft_logits),
        None if batch.slot_ids is None else batch.slot_ids.dtype,
        batch.draft_to_target is None,
        None if counts is None else _form(counts.prompt_mask),
        None if counts is None else _form(counts.output_counts),
        _params_kind(params),
        _form(workspace),
        None if out is None else (out.logprobs is None, out.total_variation is None),
    )


def sample_kind(
    batch: SampleBatch,
    params: SamplingTensors,
    workspace: Tensor | None,
    out: SampleOutput | None,
) -> tuple[object, ...]:
    """The same for a `sample`."""
    counts = batch.token_counts
    return (
        batch.draft_index,
        batch.stream,
        batch.target_vocab_size,
        batch.logits.device,
        _form(batch.logits),
        batch.positions.dtype,
        None if batch.slot_ids is None else batch.slot_ids.dtype,
        batch.draft_to_target is None,
        None if counts is None else _form(counts.prompt_mask),
        None if counts is None else _form(counts.output_counts),
        _params_kind(params),
        _form(workspace),
        None if out is None else out.logprobs is None,
    )


def _form(tensor: Tensor | None) -> object:
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype)


def _params_kind(params: SamplingTensors) -> tuple[object, ...]:
    return (
        params.seeds.shape,
        params.seeds.dtype,
        params.seeds.device,
        _recipe_kind(params.target),
        _recipe_kind(params.draft),
        params.penalties is None,
        None if params.bias is None else params.bias.token_ids.shape,
        params.num_logprobs,
    )


def _recipe_kind(recipe: RecipeTensors) -> tuple[bool, ...]:
    return (
        recipe.any_greedy,
        recipe.all_greedy,
        recipe.any_min_p,
        recipe.any_top_k,
        recipe.any_top_p,
    )
