"""Memory that is never clean, so that an output which is not fully written shows.

It refuses to reach memory that PyTorch does not allocate.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

EMPTY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


def memory(*, poisoned: bool) -> AbstractContextManager[object]:
    """Ordinary memory or poisoned, which makes every PyTorch call slower."""
    return PoisonedMemory() if poisoned else nullcontext()


class PoisonedMemory(TorchDispatchMode):
    """Within it every fresh tensor is NaN, True or a large number."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator, and poison what it only allocated."""
        result = func(*args, **(kwargs or {}))
        if func in EMPTY and isinstance(result, Tensor):
            if result.is_floating_point():
                result.fill_(torch.nan)
            else:
                result.fill_(torch.iinfo(result.dtype).max if result.dtype != torch.bool else 1)
        return result
