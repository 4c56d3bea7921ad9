"""What vLLM does to logits before and after acceptor reads them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.config.model import PROCESSED_LOGPROBS_MODES

AddRequest = Callable[[int, Any], bool]


class Processing:
    """Biases, penalties, bad words, custom processors and budgets, for requests that have some.

    vLLM copies logits to float32 for every request that is not at its defaults. Temperature and
    filters are read by acceptor itself, so that only what remains needs the copy.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.asked = np.zeros(len(sampler.needs_logits_processing), dtype=bool)
        states = sampler.sampling_states
        states.add_request = self._starting(states.add_request)
        for state in (*sampler.logits_processors, sampler.thinking_budget_state):
            state.add_request = self._watching(state.add_request)

    def adjusted(self, logits: Tensor, context: Any) -> Tensor:
        """Logits [num_logits, vocab_size] as temperature and filters find them."""
        if not self.asked[context.idx_mapping_np].any():
            return logits
        adjusted = logits.to(torch.float32, copy=True)
        for processor in self.sampler.logits_processors:
            adjusted = processor.apply(adjusted, context)
        self.sampler.thinking_budget_state.apply(adjusted, context)
        return adjusted

    def finished(self, adjusted: Tensor, context: Any) -> Tensor:
        """Logits after temperature and filters, if vLLM reports something of them."""
        sampler, slots = self.sampler, context.idx_mapping_np
        states, rows = sampler.sampling_states, context.expanded_idx_mapping
        reports = sampler.logprobs_mode in PROCESSED_LOGPROBS_MODES
        reports &= states.max_num_logprobs(slots) >= 0
        if not reports and not sampler.return_sampling_mask:
            return adjusted
        processed = adjusted.to(torch.float32, copy=True)
        states.apply_temperature(processed, rows, slots)
        states.apply_min_p(processed, rows, slots)
        finished: Tensor = states.apply_top_k_top_p(processed, rows, slots)
        return finished

    def _starting(self, add: AddRequest) -> AddRequest:
        def start(slot: int, params: Any) -> bool:
            self.asked[slot] = False
            return add(slot, params)

        return start

    def _watching(self, add: AddRequest) -> AddRequest:
        def watch(slot: int, params: Any) -> bool:
            needed = add(slot, params)
            self.asked[slot] |= needed
            return needed

        return watch
