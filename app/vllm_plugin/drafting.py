"""Drafts drawn with the target's noise, as coupled verification asks for."""

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor
from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample

from ...core import SampleBatch, Sampler, Stream
from .parameters import Parameters

SPECULATORS = "vllm.v1.worker.gpu.spec_decode"
DRAWING = (f"{SPECULATORS}.speculator", f"{SPECULATORS}.dspark.speculator")
"""The modules that draw drafts with `gumbel_sample`; an engine has imported those that it uses."""


def draw_drafts_with(sampler: Sampler, parameters: Parameters) -> None:
    """Let this process's speculators draw with a sampler; verification then needs no draft logits.

    The draw is captured in the speculators' CUDA graphs.
    """

    def draw(
        logits: Tensor,
        idx_mapping: Tensor,
        temperature: Tensor,
        seeds: Tensor,
        pos: Tensor,
        **_: Any,
    ) -> Tensor:
        batch = SampleBatch(
            logits=logits, positions=pos + 1, draft_index=1, draft_stream=Stream.TARGET
        )
        # Graphs are padded with requests of slot -1.
        slot_ids = idx_mapping.clamp(min=0)
        output = sampler.sample(batch, parameters.of_drafts(temperature, seeds, slot_ids))
        # The draft model reads the token next, of padding and of broken logits, too.
        return output.token_ids.clamp_(min=0)

    _draw_with(draw)


def draw_drafts_as_vllm() -> None:
    """Undo `draw_drafts_with`, for engines that this process makes after a coupled one."""
    _draw_with(gumbel_sample)


def _draw_with(draw: Callable[..., Tensor]) -> None:
    for module in filter(None, map(sys.modules.get, DRAWING)):
        module.gumbel_sample = draw  # type: ignore[attr-defined]
