"""The parameters of a step's requests, read where vLLM keeps them: by slot, without a copy."""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import RecipeTensors, SamplingTensors

Slots = np.ndarray[Any, Any]


class Parameters:
    """What vLLM's `SamplingStates` hold, each parameter [max_num_reqs] on the host and the device.

    Drafts of vLLM are drawn at the temperature alone. Constants are made when first used: what an
    engine allocates with its weights is lost when it sleeps at level 2.
    """

    def __init__(self, states: Any) -> None:
        self.states = states

    @cached_property
    def no_filters(self) -> dict[str, Tensor]:
        """Min-p, top-k and top-p that are off."""
        zeros = torch.zeros_like(self.states.temperature.gpu)
        return {"min_p": zeros, "top_k": zeros.int(), "top_p": torch.ones_like(zeros)}

    @cached_property
    def not_processed(self) -> Tensor:
        """Logprobs are vLLM's."""
        return torch.zeros_like(self.states.temperature.gpu, dtype=torch.bool)

    def of(self, slot_ids: Tensor, slots: Slots) -> SamplingTensors:
        """For verifying requests of these slots, [num_reqs] int32 and the same on the host."""
        states = self.states
        greedy = states.temperature.np[slots] == 0
        any_greedy, all_greedy = bool(greedy.any()), bool(greedy.all())
        draft = self._at(states.temperature.gpu, any_greedy=any_greedy, all_greedy=all_greedy)
        target = RecipeTensors(
            temperature=states.temperature.gpu,
            min_p=states.min_p.gpu,
            top_k=states.top_k.gpu,
            top_p=states.top_p.gpu,
            any_greedy=any_greedy,
            all_greedy=all_greedy,
            any_min_p=bool((states.min_p.np[slots] > 0).any()),
            any_top_k=bool((states.top_k.np[slots] < states.vocab_size).any()),
            any_top_p=bool((states.top_p.np[slots] < 1).any()),
        )
        return self._tensors(states.seeds.gpu, target, draft, slot_ids)

    def of_drafts(self, temperature: Tensor, seeds: Tensor, slot_ids: Tensor) -> SamplingTensors:
        """For drawing drafts, with the tensors that a speculator keeps of its own."""
        recipe = self._at(temperature, any_greedy=True, all_greedy=False)
        return self._tensors(seeds, recipe, recipe, slot_ids)

    def _at(self, temperature: Tensor, *, any_greedy: bool, all_greedy: bool) -> RecipeTensors:
        return RecipeTensors(
            temperature=temperature,
            **self.no_filters,
            any_greedy=any_greedy,
            all_greedy=all_greedy,
            any_min_p=False,
            any_top_k=False,
            any_top_p=False,
        )

    def _tensors(
        self, seeds: Tensor, target: RecipeTensors, draft: RecipeTensors, slot_ids: Tensor
    ) -> SamplingTensors:
        return SamplingTensors(
            seeds=seeds,
            target=target,
            draft=draft,
            penalties=None,
            bias=None,
            num_logprobs=None,
            logprobs_processed=self.not_processed,
            slot_ids=slot_ids,
        )
