"""How addresses become arguments of kernels that an earlier call of the same kind has compiled.

Built once per kind by making the arguments of placeholders; a later call only picks values. This
module refuses to ask whether two calls are of one kind: see `known_calls`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from operator import itemgetter, or_
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime import driver

from .arguments import Arguments
from .call_tensors import CallTensors
from .launch import launch_all
from .plan import Plan

ALIGNMENT = 16
"""Triton compiles for addresses that are multiples of so many bytes, or for any."""

Build = Callable[[Any, Any, Any], Arguments]
"""Makes arguments of a call's tensors, its inverse map and its places in the workspace."""

Pick = Callable[[Sequence[object]], Any]
"""A tuple of some values of a call."""


@frozen
class Slot:
    """Stands for a tensor.

    Attributes:
        index: which value of a call is the tensor's address.
        shape: of the tensor.
    """

    index: int
    shape: Sequence[int]


@frozen(eq=False)
class Replay:
    """A kind of call.

    Its values are the addresses, the parts of the workspace, the constants, and then tuples, each
    picked from the values before it.

    Attributes:
        plan: what is launched.
        device: where.
        offsets: bytes from the workspace to each of its parts.
        constants: every argument that is not a tensor.
        tuples: what each tuple of arguments holds.
        launches: each compiled kernel on its grid, and its arguments.
    """

    plan: Plan
    device: int
    offsets: Sequence[int]
    constants: Sequence[object]
    tuples: Sequence[Pick]
    launches: Sequence[tuple[Callable[..., object], Pick]]

    def launch(self, addresses: Sequence[int]) -> bool:
        """Launch every kernel on the current stream, or none if it takes Triton's launcher.

        Args:
            addresses: see `addresses_of`; unaligned ones take Triton's launcher, and so does
                whoever listens to launches.
        """
        if not are_aligned(addresses) or _are_heard():
            return False
        workspace = addresses[-1]
        values: list[object] = [*addresses, *[workspace + offset for offset in self.offsets]]
        values += self.constants
        for pick in self.tuples:
            values.append(pick(values))
        stream = driver.active.get_current_stream(self.device)
        for start, pick in self.launches:
            start(stream, *pick(values))
        return True


def addresses_of(tensors: CallTensors, inverse_map: Tensor | None, workspace: Tensor) -> list[int]:
    """Where everything lies that there is; the workspace comes last."""
    addresses = [tensor.data_ptr() for tensor in tensors if tensor is not None]
    if inverse_map is not None:
        addresses.append(inverse_map.data_ptr())
    addresses.append(workspace.data_ptr())
    return addresses


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
    order = iter(range(len(tensors)))
    slots = [None if t is None else Slot(next(order), t.shape) for t in (*tensors, inverse_map)]
    first_part = next(order) + 1
    parts: dict[int, Slot] = {}

    def part(first: int, size: int, dtype: torch.dtype) -> Slot:
        return parts.setdefault(first * dtype.itemsize, Slot(first_part + len(parts), (size,)))

    calls = _calls(plan, build(CallTensors(*slots[:-1]), slots[-1], part), kernels)
    picks = _Picks(calls, first_part + len(parts))
    launches = [
        (partial(kernel.run, *(*grid, 1, 1)[:3]), itemgetter(*map(picks.index_of, arguments)))
        for kernel, (grid, arguments) in zip(kernels, calls, strict=True)
    ]
    return Replay(plan, device, tuple(parts), picks.constants, picks.tuples, launches)


Launched = tuple[tuple[int, ...], Sequence[object]]
"""A grid, and what is given to a compiled kernel behind the stream."""


@frozen(eq=False)
class _Constant:
    """An argument to be taken as it is, even if it is a tuple."""

    value: object


def _calls(plan: Plan, arguments: Arguments, kernels: Sequence[CompiledKernel]) -> list[Launched]:
    calls: list[Launched] = []

    def collect(kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> None:
        compiled = kernels[len(calls)]
        # What Triton starts a kernel with: the last three are for those who listen to launches.
        handles = compiled.function, compiled.packed_metadata, None, None, None
        missing = list(kernel.signature.parameters.values())[len(args) :]
        constants = [options.get(parameter.name, parameter.default) for parameter in missing]
        calls.append((grid, (*map(_Constant, handles), *args, *map(_Constant, constants))))

    launch_all(plan, arguments, collect)
    return calls


class _Picks:
    """Finds every argument a place among the values of a call.

    Args:
        calls: what is launched, by placeholders.
        first: how many values there are before the constants.
    """

    def __init__(self, calls: Sequence[Launched], first: int) -> None:
        leaves = {id(leaf): leaf for _grid, arguments in calls for leaf in _leaves(arguments)}
        self._first = first
        self._places = {leaf: place for place, leaf in enumerate(leaves)}
        self.constants = [
            leaf.value if isinstance(leaf, _Constant) else leaf for leaf in leaves.values()
        ]
        self.tuples: list[Pick] = []

    def index_of(self, argument: Any) -> int:
        """Which value an argument is; a tuple becomes one behind all others."""
        if isinstance(argument, Slot):
            return argument.index
        if id(argument) not in self._places:
            self.tuples.append(itemgetter(*map(self.index_of, argument)))
            self._places[id(argument)] = len(self._places)
        return self._first + self._places[id(argument)]


def _leaves(argument: object) -> Iterator[object]:
    if isinstance(argument, tuple):
        for part in argument:
            yield from _leaves(part)
    elif not isinstance(argument, Slot):
        yield argument
