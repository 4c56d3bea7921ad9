"""Everything that decodes, wired together: takes requests, gives results.

This module refuses to choose its parts; see `acceptor.app.wiring`.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
from attrs import frozen

from ..core.policies import Policy
from ..core.ports import LanguageModel, Sampler
from ..core.token_counts import TokenCounts
from .admission import admit
from .decode import DecodeRun
from .drafter import Drafter
from .frontier import Running
from .prefill import prefill
from .request import GenerationRequest, GenerationResult
from .request_state import Detokenizer, RequestState


@frozen(eq=False, kw_only=True)
class Decoder:
    """A target model, what drafts for it, and what decides between them.

    Attributes:
        target: whose law the output follows.
        drafter: proposes draft tokens; `NoDrafter` for plain decoding.
        sampler: the backend.
        policy: decides which draft tokens survive.
        eos_token_ids: tokens that end an output.
        new_detokenizer: makes what turns one output's tokens into text.
    """

    target: LanguageModel[Any]
    drafter: Drafter[Any]
    sampler: Sampler
    policy: Policy
    eos_token_ids: frozenset[int]
    new_detokenizer: Callable[[], Detokenizer]

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        """Decode a batch to its end; the results are in the order of the requests.

        Raises:
            InvalidInputError: a request does not fit the target.
        """
        results = {
            progress.request_index: progress.result
            for progress in self.start(requests)
            if progress.result is not None
        }
        return [results[index] for index in range(len(requests))]

    def start(self, requests: Sequence[GenerationRequest]) -> DecodeRun:
        """Admit a batch and enter its prompts; iterating over what is returned decodes it.

        Raises:
            InvalidInputError: a request does not fit the target.
        """
        states = admit(requests, self.target, self.eos_token_ids, self.new_detokenizer)
        began = perf_counter()
        with torch.inference_mode():
            run = self._new_run(states)
            for state in states:
                self._enter(state, run)
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        run.prefill_seconds = perf_counter() - began
        return run

    def _new_run(self, states: Sequence[RequestState]) -> DecodeRun:
        num_slots = max(len(states), 1)
        max_len = max((state.max_len for state in states), default=1)
        device = self.target.device
        counts = None
        if any(state.request.params.has_penalties for state in states):
            counts = TokenCounts.empty(num_slots, self.target.vocab_size, device)
        return DecodeRun(
            target=self.target,
            drafter=self.drafter,
            sampler=self.sampler,
            policy=self.policy,
            states=states,
            running=Running.gather(states, device),
            max_len=max_len,
            target_cache=self.target.new_cache(num_slots, max_len),
            draft_memory=self.drafter.new_memory(num_slots, max_len),
            token_counts=counts,
        )

    def _enter(self, state: RequestState, run: DecodeRun) -> None:
        prompt = state.request.prompt_token_ids
        prefill(self.target, run.target_cache, state.index, prompt)
        self.drafter.start(run.draft_memory, state.index, prompt)
        if run.token_counts is not None:
            run.token_counts.start(state.index, prompt)
