"""Triton without a device and without a compiler: only what it would launch, and with what.

Arguments are inspected and kernels are told apart by Triton itself. Import it in a process of its
own: it takes the place of Triton's driver for good.
"""

from collections.abc import Callable, Iterator
from typing import Any

import triton.compiler
from attrs import frozen
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import driver

from acceptor.backends.triton_backend.launch import start


@frozen
class Launch:
    """A kernel as Triton has specialised it, its grid, and its arguments without structure."""

    kernel: int
    grid: tuple[int, ...]
    stream: int
    arguments: tuple[object, ...]
    behind_another: bool
    """Whether it may start before the launch before it ends."""


launches: list[Launch] = []


class NotCompiled(CompiledKernel):  # type: ignore[misc] # Triton has no types
    """What Triton keeps of a kernel, except for the kernel."""

    def __init__(self, src: Any, *, options: dict[str, Any], **_: object) -> None:
        self.src = src
        self.behind_another = bool(options["launch_pdl"])
        self.function = id(self)
        self.packed_metadata = ()

    def launch_metadata(self, *_: object) -> None:
        """Nobody listens."""

    @property
    def run(self) -> Callable[..., None]:
        """Keeps what a launch is given."""

        def keep(x: int, y: int, z: int, stream: int, function: int, *rest: Any) -> None:
            assert rest[0] == self.packed_metadata
            arguments = tuple(_leaves(rest[4:]))
            launches.append(Launch(function, (x, y, z), stream, arguments, self.behind_another))

        return keep


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


def _leaves(argument: object) -> Iterator[object]:
    if isinstance(argument, tuple):
        for part in argument:
            yield from _leaves(part)
    else:
        yield argument.data_ptr() if isinstance(argument, Tensor) else argument


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
