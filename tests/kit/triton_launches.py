"""Triton without a device and without a compiler: only what it would launch, and with what.

Arguments are inspected and kernels are told apart by Triton itself. Import it in a process of its
own: it takes the place of Triton's driver for good.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import triton.compiler
from attrs import frozen
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import driver

from acceptor.backends.triton_backend import driver_launch
from acceptor.backends.triton_backend.driver_launch import LaunchAttribute, LaunchConfig
from acceptor.backends.triton_backend.launch import start

SHARED_BYTES = 4096


NUMBERS: dict[str, Any] = {
    "i1": ctypes.c_bool,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
}
"""What Triton's types of numbers are in memory."""


@frozen
class Launch:
    """A kernel as Triton has specialised it, its grid, and the arguments that it reads."""

    kernel: int
    grid: tuple[int, ...]
    stream: int
    arguments: tuple[object, ...]
    behind_another: bool
    """Whether it may start before the launch before it ends."""
    num_warps: int


launches: list[Launch] = []
kernels: "dict[int, NotCompiled]" = {}


class NotCompiled(CompiledKernel):  # type: ignore[misc] # Triton has no types
    """What Triton keeps of a kernel, except for the kernel."""

    def __init__(self, src: Any, *, options: dict[str, Any], **_: object) -> None:
        self.src = src
        self.function = id(self)
        self.packed_metadata = ()
        names = "num_warps", "num_ctas", "launch_cooperative_grid", "launch_pdl"
        self.metadata = SimpleNamespace(
            shared=SHARED_BYTES,
            global_scratch_size=0,
            profile_scratch_size=0,
            **{name: options[name] for name in names},
        )
        kernels[self.function] = self

    def launch_metadata(self, *_: object) -> None:
        """Nobody listens."""

    @property
    def run(self) -> Callable[..., None]:
        """Keeps what Triton's launcher is given."""

        def keep(x: int, y: int, z: int, stream: int, function: int, *rest: Any) -> None:
            assert (function, rest[0]) == (self.function, self.packed_metadata)
            arguments = [
                _as_number(kind, argument)
                for kind, argument in _read(tuple(self.src.signature.values()), rest[4:])
            ]
            self._keep((x, y, z), stream, arguments)

        return keep

    def _keep(self, grid: tuple[int, ...], stream: int, arguments: Sequence[object]) -> None:
        metadata = self.metadata
        behind_another = bool(metadata.launch_pdl)
        launches.append(
            Launch(
                self.function, grid, stream, tuple(arguments), behind_another, metadata.num_warps
            )
        )

    def launched(self, config: LaunchConfig, places: int) -> None:
        """Keeps what the driver is given."""
        read = list(_read(tuple(self.src.signature.values()), None))
        addresses = (ctypes.c_uint64 * (len(read) + 2)).from_address(places)
        arguments = [
            NUMBERS.get(kind, ctypes.c_uint64).from_address(address).value
            for (kind, _), address in zip(read, addresses, strict=False)
        ]
        null = [ctypes.c_uint64.from_address(address).value for address in addresses[-2:]]
        assert null == [0, 0], "scratch memory that these kernels do without"
        assert list(config.block) == [32 * self.metadata.num_warps, 1, 1]
        assert config.shared_bytes == SHARED_BYTES
        assert config.num_attributes == bool(self.metadata.launch_pdl)
        if config.num_attributes:
            attribute = LaunchAttribute.from_address(config.attributes)
            assert (attribute.id, attribute.value) == (6, 1), "may start before the one before ends"
        self._keep(tuple(config.grid), config.stream, arguments)


errors: list[int] = []
"""What the driver answers to the next launches, first things first; 0 when empty."""


def launch_by_driver(config: Any, function: Any, arguments: Any, extra: None) -> int:
    """`cuLaunchKernelEx` without a device."""
    assert extra is None
    error = errors.pop(0) if errors else 0
    if not error:
        where = LaunchConfig.from_address(config.value)
        kernels[function.value].launched(where, arguments.value)
    return error


class NoDevice:
    """Device 0 and its stream 7."""

    capability = 90

    def get_current_target(self) -> GPUTarget:
        """What kernels would be compiled for."""
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Not the default one."""
        return 7 + device


def _read(kind: Any, argument: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, tuple):
        parts = [None] * len(kind) if argument is None else argument
        for part in zip(kind, parts, strict=True):
            yield from _read(*part)
    elif kind != "constexpr":
        yield kind, argument


def _as_number(kind: str, argument: Any) -> object:
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    return NUMBERS[kind](argument).value


class Counter:
    """A launcher that counts how often Triton's is asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Launch."""
        self.count += 1
        return start(*args, **options)


triton.compiler.compile = NotCompiled
driver.set_active(NoDevice())
setattr(driver_launch, "driver_function", lambda: launch_by_driver)  # noqa: B010, typed
