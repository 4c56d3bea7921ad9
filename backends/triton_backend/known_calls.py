"""Calls like earlier ones go past Triton's launcher, which inspects every argument of every kernel.

The first call of a kind goes through it; later ones hand addresses to the kernels that it left.
A kind decides everything that kernels are given but addresses, and all addresses must be multiples
of 16 bytes, so later calls need the same types, constants and specialisations. This module refuses
to compile.
"""

from typing import Any

from torch import Tensor
from triton.compiler import CompiledKernel
from triton.runtime import driver

from .arguments import Arguments
from .call_tensors import CallTensors
from .launch import Launcher, launch_all
from .plan import Plan
from .replay import Build, Replay, addresses_of, are_aligned, replay_of
from .workspace import cut

MOST_KNOWN = 1024
"""Kinds that are kept at once."""


class KnownCalls:
    """The kinds of calls that were made.

    Args:
        launch: starts a kernel and returns what was compiled for it. Calls stay unknown if it
            returns something else, or if their addresses are not aligned.
    """

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._known: dict[object, Replay] = {}

    def find(self, kind: object) -> Replay | None:
        """The call of this kind on the current device."""
        if not self._known:
            return None
        return self._known.get((driver.active.get_current_device(), kind))

    def launch(
        self,
        kind: object,
        plan: Plan,
        build: Build,
        tensors: CallTensors,
        inverse_map: Tensor | None,
        workspace: Tensor,
    ) -> None:
        """Launch all kernels of a plan, and remember them if a later call may replay them."""
        kernels = self._first(plan, build(tensors, inverse_map, cut(workspace)))
        if kernels and are_aligned(addresses_of(tensors, inverse_map, workspace)):
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            device = driver.active.get_current_device()
            self._known[device, kind] = replay_of(
                plan, build, tensors, inverse_map, kernels, device
            )

    def _first(self, plan: Plan, arguments: Arguments) -> list[CompiledKernel]:
        launched: list[object] = []

        def record(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> None:
            launched.append(self._launch(kernel, grid, *args, **options))

        launch_all(plan, arguments, record)
        kernels = [kernel for kernel in launched if isinstance(kernel, CompiledKernel)]
        return kernels if len(kernels) == len(launched) else []
