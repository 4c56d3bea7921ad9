"""The pieces between matrix products, each compiled to one or two kernels by torch.compile.

The number of tokens is left open, so that a model is compiled for one token and for several, and
not for every batch.
"""

import shutil
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from .pieces import PLAIN_PIECES, Pieces, RMSNorm

VARIANTS = 64
"""Compiled forms of a piece that are kept: models of any shape, for one token and for several."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def can_compile(device: torch.device) -> bool:
    """Whether there is a GPU to compile for, and what compiles for it: Triton and a C compiler."""
    return device.type == "cuda" and find_spec("triton") is not None and has_c_compiler()


def has_c_compiler() -> bool:
    """Whether there is one that Triton finds; it compiles what launches kernels."""
    return any(map(shutil.which, ("cc", "gcc", "clang")))


@cache
def fused_pieces() -> Pieces:
    """Compiled when they are first called."""
    add_and_normalise = _compiled(PLAIN_PIECES.add_and_normalise)
    turn_and_store = _compiled(PLAIN_PIECES.turn_and_store)
    gate = _compiled(PLAIN_PIECES.gate)

    def add_and_normalise_any(
        hidden: Tensor, update: Tensor, norm: RMSNorm
    ) -> tuple[Tensor, Tensor]:
        _leave_open(hidden, update)
        return add_and_normalise(hidden, update, norm)

    def turn_and_store_any(
        heads: Tensor,
        head_norms: tuple[RMSNorm, RMSNorm] | None,
        cos: Tensor,
        signed_sin: Tensor,
        rows: Tensor,
        cache_rows: Tensor,
    ) -> Tensor:
        _leave_open(heads, cos, signed_sin, rows)
        return turn_and_store(heads, head_norms, cos, signed_sin, rows, cache_rows)

    def gate_any(gate_and_up: Tensor) -> Tensor:
        _leave_open(gate_and_up)
        return gate(gate_and_up)

    return Pieces(add_and_normalise_any, turn_and_store_any, gate_any)


def _compiled(piece: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    compiled: Callable[Arguments, Result] = torch.compile(piece, dynamic=False)

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with torch._dynamo.config.patch(recompile_limit=VARIANTS):  # noqa: SLF001, has no other name
            return compiled(*args, **kwargs)

    return call


def _leave_open(*by_token: Tensor) -> None:
    for tensor in by_token:
        # A single token is a case of its own to the compiler, whatever it is told.
        if len(tensor) > 1:
            torch._dynamo.mark_dynamic(tensor, 0)  # noqa: SLF001, documented under this name
