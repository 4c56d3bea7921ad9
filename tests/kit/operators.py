"""Which torch operators a piece of code really calls."""

from typing import Any

from attrs import frozen
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@frozen
class Call:
    """One operator call.

    Attributes:
        name: like `aten.exp.default`.
        shapes: of its tensor arguments.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]


class OperatorLog(TorchDispatchMode):
    """Everything torch was asked to do inside a `with`, also below autograd and composites."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, Tensor))
        self.calls.append(Call(str(func), shapes))
        return func(*args, **(kwargs or {}))

    def names(self) -> set[str]:
        """The operators called, without overloads: `exp`, `log_softmax` and so on."""
        return {call.name.split(".")[1].lstrip("_") for call in self.calls}
