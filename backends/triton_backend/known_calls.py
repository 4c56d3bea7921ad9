"""Calls like earlier ones go past Triton's launcher, which inspects every argument of every kernel.

The first call of a kind goes through it; later ones hand addresses to the kernels that it left.
A kind decides everything that kernels are given but addresses, and all addresses must be multiples
of 16 bytes, so later calls need the same types, constants and specialisations. This module refuses
to compile.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor
from triton.compiler import CompiledKernel
from triton.runtime import driver

from .arguments import Arguments
from .call_tensors import CallTensors, Part
from .driver_launch import is_launchable
from .launch import Launcher, launch_all
from .plan import Plan
from .replay import Build, Replay, addresses_of, are_aligned, replay_of
from .workspace import cut

MOST_KNOWN = 1024
"""Kinds that are kept at once."""

Whole = TypeVar("Whole")
Parts = tuple[Part, Part, Part]
"""A call's batch, parameters and output."""


class KnownCalls:
    """The kinds of calls that were made.

    Args:
        launch: starts a kernel and returns what was compiled for it. Calls stay unknown if it
            returns something else, or if their addresses are not aligned.
    """

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._parts: WeakKeyDictionary[object, Part] = WeakKeyDictionary()
        self._known: dict[object, Replay] = {}

    def part(self, whole: Whole, look: Callable[[Whole], Part]) -> Part:
        """What `look` says of a part of a call; asked once, as long as somebody keeps the part."""
        part = self._parts.get(whole)
        if part is None:
            part = self._parts[whole] = look(whole)
        return part

    def find(self, policy: object, parts: Parts, workspace: Tensor | None) -> Replay | None:
        """A call like this one, on the current device."""
        if not self._known:
            return None
        return self._known.get(_kind(policy, parts, workspace))

    def launch(
        self,
        policy: object,
        parts: Parts,
        workspace: Tensor | None,
        plan: Plan,
        build: Build,
        inverse_map: Tensor | None,
        scratch: Tensor,
    ) -> None:
        """Launch all kernels of a plan, and remember them if a later call may replay them."""
        tensors = CallTensors(*[leaf for part in parts for leaf in part.leaves])
        kernels = self._first(plan, build(tensors, inverse_map, cut(scratch)))
        if kernels and are_aligned(addresses_of(parts, inverse_map, scratch)):
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            device = driver.active.get_current_device()
            replay = replay_of(plan, build, tensors, inverse_map, kernels, device)
            self._known[_kind(policy, parts, workspace)] = replay

    def _first(self, plan: Plan, arguments: Arguments) -> Sequence[CompiledKernel]:
        launched: list[object] = []

        def record(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> None:
            launched.append(self._launch(kernel, grid, *args, **options))

        launch_all(plan, arguments, record)
        kernels = [kernel for kernel in launched if isinstance(kernel, CompiledKernel)]
        complete = len(kernels) == len(launched) and all(map(is_launchable, kernels))
        return kernels if complete else []


def _kind(policy: object, parts: Parts, workspace: Tensor | None) -> tuple[object, ...]:
    batch, params, out = parts
    device = driver.active.get_current_device()
    if workspace is None:
        return device, policy, batch.kind, params.kind, out.kind
    given = workspace.dtype, workspace.shape, workspace.stride(), workspace.get_device()
    return device, policy, batch.kind, params.kind, out.kind, given
