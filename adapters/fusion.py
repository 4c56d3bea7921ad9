"""The halves of a layer with everything between matrix products fused by torch.compile.

The number of tokens is left open, so that a model is compiled for one token and for several, and
not for every batch. This module refuses to compile attention, and anything on a CPU.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from .kv_cache import LayerCache
from .transformer import Halves, Layer, Step

VARIANTS = 64
"""Compiled forms of a half that are kept: models of any shape, for one token and for several."""


@cache
def fused_halves() -> Halves:
    """Compiled when they are first called."""
    begin, finish = _compiled(Layer.begin), _compiled(Layer.finish)

    def begin_any(
        layer: Layer, hidden: Tensor, update: Tensor, step: Step, layer_cache: LayerCache
    ) -> tuple[Tensor, Tensor]:
        _leave_open(hidden, update, step.cos, step.signed_sin, step.rows)
        return begin(layer, hidden, update, step, layer_cache)

    def finish_any(layer: Layer, hidden: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        _leave_open(hidden, attended)
        return finish(layer, hidden, attended)

    return Halves(begin_any, finish_any)


def _compiled(half: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    compiled: Callable[..., tuple[Tensor, Tensor]] = torch.compile(half, dynamic=False)

    def call(*args: object) -> tuple[Tensor, Tensor]:
        with torch._dynamo.config.patch(recompile_limit=VARIANTS):  # noqa: SLF001, has no other name
            return compiled(*args)

    return call


def _leave_open(*by_token: Tensor) -> None:
    for tensor in by_token:
        # A single token is a case of its own to the compiler, whatever it is told.
        if len(tensor) > 1:
            torch._dynamo.mark_dynamic(tensor, 0)  # noqa: SLF001, documented under this name
