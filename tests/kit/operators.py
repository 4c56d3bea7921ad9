"""Records which torch operators a piece of code really calls."""

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class OperatorLog(TorchDispatchMode):
    """All operators that torch runs inside a `with`, also those below autograd and composites."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, list[int]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        sizes = [size for arg in args if isinstance(arg, Tensor) for size in arg.shape]
        self.calls.append((str(func).split(".")[1].lstrip("_"), sizes))
        return func(*args, **(kwargs or {}))

    def names(self, size: int | None = None) -> set[str]:
        """The operators called, such as `exp` or `log_softmax`; or those on tensors of a size."""
        return {name for name, sizes in self.calls if size is None or size in sizes}
