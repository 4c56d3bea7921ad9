"""Operations of a GPU's forward, compiled to a few kernels by torch.compile.

The number of tokens is left open: a model is compiled for one token and for several, not for every
batch.
"""

import shutil
from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

import torch

from .transformer import PLAIN_OPERATIONS, LayerOperations

VARIANTS = 64
"""Compiled forms of a function that are kept: for models of any shape."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def has_c_compiler() -> bool:
    """Whether there is one that Triton finds; it compiles what launches kernels."""
    return any(map(shutil.which, ("cc", "gcc", "clang")))


@cache
def fused_operations() -> LayerOperations:
    """Compiled when they are first called."""
    plain = PLAIN_OPERATIONS
    return LayerOperations(
        compiled(plain.add_and_normalise, by_token=(0, 1)),
        compiled(plain.turn_and_store, by_token=(0, 2, 3, 4)),
        compiled(plain.gate, by_token=(0,)),
    )


def compiled(
    function: Callable[Arguments, Result], by_token: tuple[int, ...] = ()
) -> Callable[Arguments, Result]:
    """A function of tensors by position, compiled for each kind that comes.

    Those `by_token` have a first dimension, of tokens, that is left open.
    """
    inner: Callable[Arguments, Result] = torch.compile(function, dynamic=False)

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for place in by_token:
            # A single token is a case of its own to the compiler, whatever it is told.
            if len(args[place]) > 1:  # type: ignore[arg-type]
                torch._dynamo.mark_dynamic(args[place], 0)  # noqa: SLF001, documented so
        with torch._dynamo.config.patch(recompile_limit=VARIANTS):  # noqa: SLF001, has no other name
            return inner(*args, **kwargs)

    return call
