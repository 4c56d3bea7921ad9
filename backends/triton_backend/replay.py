"""How addresses become arguments of kernels that an earlier call of the same kind has compiled.

Built once per kind by making the arguments of placeholders; a later call only writes its addresses
where the driver reads them. This module refuses to ask whether two calls are of one kind: see
`known_calls`.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import count
from operator import or_
from threading import Lock
from typing import Any

import torch
from attrs import Factory, define, frozen
from torch import Tensor
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime import driver

from ...core.errors import UnavailableError
from .arguments import Arguments
from .call_tensors import CallTensors, Part
from .driver_launch import WORD, DriverLaunch, driver_launch, flattened, word_of
from .launch import launch_all
from .plan import Plan

ALIGNMENT = 16
"""Triton compiles for addresses that are multiples of so many bytes, or for any."""

Build = Callable[[Any, Any, Any], Arguments]
"""Makes arguments of a call's tensors, its inverse map and its places in the workspace."""


@frozen
class Slot:
    """Stands for a tensor.

    Attributes:
        index: which word of a call is the tensor's address.
        shape: of the tensor.
    """

    index: int
    shape: Sequence[int]


@define(eq=False)
class Replay:
    """A kind of call.

    Its words are the addresses, the parts of the workspace, a null pointer, and the constants.

    Attributes:
        plan: what is launched.
        device: where.
        offsets: bytes from the workspace to each of its parts.
        words: what the driver reads.
        launches: the kernels, in order.
    """

    plan: Plan
    device: int
    offsets: Sequence[int]
    words: "ctypes.Array[ctypes.c_uint64]"
    launches: Sequence[DriverLaunch]
    _addresses: Sequence[int] = ()
    _stream: int | None = None
    # One call at a time: the driver reads the words of the call that wrote them.
    _turn: Any = Factory(Lock)

    def launch(self, addresses: list[int]) -> bool:
        """Launch every kernel on the current stream, or none if it takes Triton's launcher.

        Args:
            addresses: see `addresses_of`; unaligned ones take Triton's launcher, and so does
                whoever listens to launches, and a thread without a context of the driver.

        Raises:
            UnavailableError: the driver refused a kernel behind the first.
        """
        if _are_heard():
            return False
        stream = driver.active.get_current_stream(self.device)
        with self._turn:
            if addresses != self._addresses and not self._take(addresses):
                return False
            if stream != self._stream:
                self._enter(stream)
            return self._start()

    def _take(self, addresses: list[int]) -> bool:
        if not are_aligned(addresses):
            return False
        workspace = addresses[-1]
        words = [*addresses, *[workspace + offset for offset in self.offsets]]
        struct.pack_into(f"={len(words)}Q", self.words, 0, *words)
        self._addresses = addresses
        return True

    def _enter(self, stream: int) -> None:
        for launch in self.launches:
            launch.config.stream = stream
        self._stream = stream

    def _start(self) -> bool:
        for place, launch in enumerate(self.launches):
            error = launch.start()
            if error:
                if place == 0:
                    return False
                raise UnavailableError(
                    f"backend triton: expected the driver to launch a kernel, got error {error}"
                )
        return True


def addresses_of(parts: Sequence[Part], inverse_map: Tensor | None, workspace: Tensor) -> list[int]:
    """Where everything lies that there is; the workspace comes last."""
    batch, params, out = parts
    last = (workspace,) if inverse_map is None else (inverse_map, workspace)
    return list(map(Tensor.data_ptr, (*batch.tensors, *params.tensors, *out.tensors, *last)))


def are_aligned(addresses: Sequence[int]) -> bool:
    """Whether Triton would see multiples of 16 bytes only."""
    return reduce(or_, addresses) % ALIGNMENT == 0


def _are_heard() -> bool:
    runtime = knobs.runtime
    return _has_listeners(runtime.launch_enter_hook) or _has_listeners(runtime.launch_exit_hook)


def _has_listeners(hook: Any) -> bool:
    return hook is not None and bool(getattr(hook, "calls", True))


def replay_of(
    plan: Plan,
    build: Build,
    tensors: CallTensors,
    inverse_map: Tensor | None,
    kernels: Sequence[CompiledKernel],
    device: int,
) -> Replay:
    """What a call like this one launches: these kernels, in the order in which it did."""
    order = count()
    slots = [None if t is None else Slot(next(order), t.shape) for t in (*tensors, inverse_map)]
    first_part = next(order) + 1
    parts: dict[int, Slot] = {}

    def part(first: int, size: int, dtype: torch.dtype) -> Slot:
        return parts.setdefault(first * dtype.itemsize, Slot(first_part + len(parts), (size,)))

    calls = _calls(plan, build(CallTensors(*slots[:-1]), slots[-1], part), kernels)
    null = first_part + len(parts)
    places: dict[int, int] = {0: null}
    indices = [
        [
            argument.index
            if isinstance(argument, Slot)
            else places.setdefault(word_of(kind, argument), null + len(places))
            for kind, argument in flattened(kernel, arguments)
        ]
        for kernel, (_grid, arguments) in zip(kernels, calls, strict=True)
    ]
    words = (ctypes.c_uint64 * (null + len(places)))(*[0] * null, *places)
    start = ctypes.addressof(words)
    launches = [
        driver_launch(kernel, grid, (start + WORD * index for index in chosen), start + WORD * null)
        for kernel, (grid, _arguments), chosen in zip(kernels, calls, indices, strict=True)
    ]
    return Replay(plan, device, tuple(parts), words, launches)


Launched = tuple[tuple[int, ...], Sequence[object]]
"""A grid, and all that a kernel is given, in the order of its parameters."""


def _calls(plan: Plan, arguments: Arguments, kernels: Sequence[CompiledKernel]) -> list[Launched]:
    calls: list[Launched] = []

    def collect(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> None:
        missing = list(kernel.signature.parameters.values())[len(args) :]
        constants = [options.get(parameter.name, parameter.default) for parameter in missing]
        calls.append((grid, (*args, *constants)))

    launch_all(plan, arguments, collect)
    assert len(calls) == len(kernels)
    return calls
