"""Drafts drawn with the target's noise, as coupled verification asks for."""

from typing import Any

from torch import Tensor
from vllm.v1.worker.gpu.spec_decode import speculator

from ...core.batch import SampleBatch
from ...core.ports import Sampler
from ...core.randomness import Stream
from .parameters import Parameters


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
        # Graphs are padded with requests of slot -1, whose tokens nobody reads.
        slot_ids = idx_mapping.clamp(min=0)
        return sampler.sample(batch, parameters.of_drafts(temperature, seeds, slot_ids)).token_ids

    speculator.gumbel_sample = draw
