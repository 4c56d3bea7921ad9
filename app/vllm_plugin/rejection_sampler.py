"""vLLM's rejection sampler, with acceptor's verification and coupled drafting inside."""

import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from attrs import evolve
from torch import Tensor
from vllm.config import get_current_vllm_config
from vllm.config.model import PROCESSED_LOGPROBS_MODES
from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

from ...backends import load_sampler
from ...core import RecipeTensors, SampleBatch, Sampler, SamplingTensors, Stream, VerifyBatch
from ...core.errors import UnavailableError
from .registration import PluginSettings, plugin_settings
from .step_kernels import finish_step, read_step

Slots = np.ndarray[Any, Any]


class Parameters:
    """Parameters from vLLM's `SamplingStates`, each [max_num_reqs] on the host and the device.

    vLLM draws drafts with the temperature alone. Constants are made when first used: memory that an
    engine allocates with its weights is lost when it sleeps at level 2.
    """

    def __init__(self, states: Any) -> None:
        self.states = states

    @cached_property
    def neutral(self) -> SamplingTensors:
        """Parameters that change nothing."""
        zeros = torch.zeros_like(self.states.temperature.gpu)
        recipe = RecipeTensors(
            temperature=zeros,
            min_p=zeros,
            top_k=zeros.int(),
            top_p=torch.ones_like(zeros),
            any_greedy=True,
            all_greedy=False,
            any_min_p=False,
            any_top_k=False,
            any_top_p=False,
        )
        return SamplingTensors(
            seeds=zeros.long(),
            target=recipe,
            draft=recipe,
            penalties=None,
            bias=None,
            num_logprobs=None,
            logprobs_processed=zeros.bool(),
        )

    def of(self, slot_ids: Tensor, slots: Slots) -> SamplingTensors:
        """The parameters to verify these slots with, [num_reqs] int32, also given on the host."""
        states = self.states
        greedy = states.temperature.np[slots] == 0
        draft = evolve(
            self.neutral.draft,
            temperature=states.temperature.gpu,
            any_greedy=bool(greedy.any()),
            all_greedy=bool(greedy.all()),
        )
        target = evolve(
            draft,
            min_p=states.min_p.gpu,
            top_k=states.top_k.gpu,
            top_p=states.top_p.gpu,
            any_min_p=bool((states.min_p.np[slots] > 0).any()),
            any_top_k=bool((states.top_k.np[slots] < states.vocab_size).any()),
            any_top_p=bool((states.top_p.np[slots] < 1).any()),
        )
        seeds = states.seeds.gpu
        return evolve(self.neutral, seeds=seeds, target=target, draft=draft, slot_ids=slot_ids)

    def of_drafts(self, temperature: Tensor, seeds: Tensor, slot_ids: Tensor) -> SamplingTensors:
        """The parameters to draw drafts with, from a speculator's own tensors."""
        recipe = evolve(self.neutral.draft, temperature=temperature)
        return evolve(self.neutral, seeds=seeds, target=recipe, draft=recipe, slot_ids=slot_ids)


Drawn = tuple[Tensor, Tensor, Tensor]
AddRequest = Callable[[int, Any], bool]


class Processing:
    """Applies biases, penalties, bad words, custom processors and budgets, where requests have any.

    vLLM copies logits to float32 for every request that is not at its defaults. Acceptor applies
    temperature and filters itself, so only the other parameters need the copy.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.asked = np.zeros(len(sampler.needs_logits_processing), dtype=bool)
        states = sampler.sampling_states
        states.add_request = self._starting(states.add_request)
        for state in (*sampler.logits_processors, sampler.thinking_budget_state):
            state.add_request = self._watching(state.add_request)

    def adjusted(self, logits: Tensor, context: Any) -> Tensor:
        """Logits [num_logits, vocab_size] before temperature and filters."""
        if not self.asked[context.idx_mapping_np].any():
            return logits
        adjusted = logits.to(torch.float32, copy=True)
        for processor in self.sampler.logits_processors:
            adjusted = processor.apply(adjusted, context)
        self.sampler.thinking_budget_state.apply(adjusted, context)
        return adjusted

    def finished(self, adjusted: Tensor, context: Any) -> Tensor:
        """Logits after temperature and filters, if vLLM reports anything about them."""
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


def sampler_factory(own: Callable[..., Any]) -> Callable[..., Any]:
    """A factory of an engine's rejection sampler: acceptor's if its config names acceptor."""

    def make(*args: Any, **options: Any) -> Any:
        # An earlier engine may have coupled its drafts.
        _draw_with(gumbel_sample)
        settings = plugin_settings(get_current_vllm_config().additional_config)
        if settings is None:
            return own(*args, **options)
        return AcceptorSampler(settings, *args, **options)

    make.instead_of = own  # type: ignore[attr-defined]
    return make


class AcceptorSampler(RejectionSampler):  # type: ignore[misc]  # vLLM is not there for the checker
    """Chunks, logprobs and outputs are vLLM's; the law is the policy's, on unchanged logits.

    Raises:
        ConfigError: the settings do not fit the engine's speculation.
        UnavailableError: the backend cannot run, or the engine marks text with a watermark.
    """

    def __init__(
        self, settings: PluginSettings, sampler: Any, spec_config: Any, device: Any, **options: Any
    ) -> None:
        if options.get("watermark_key") is not None:
            raise UnavailableError("watermark: expected none beside acceptor, got a watermark_key")
        super().__init__(sampler, spec_config, device, **options)
        self.policy = settings.policy_for(spec_config)
        self.acceptor = load_sampler(settings.backend)
        self.parameters = Parameters(sampler.sampling_states)
        if self.policy.draft_stream is Stream.TARGET:
            draw_drafts_with(self.acceptor, self.parameters)
        self.processing = Processing(sampler)

    def _verify(
        self,
        logits: Tensor,
        draft_logits: Tensor | None,
        draft_sampled: Tensor,
        pos: Tensor,
        cu_num_logits: Tensor,
        idx_mapping: Tensor,
        idx_mapping_np: np.ndarray[Any, Any],
        expanded_idx_mapping: Tensor,
        expanded_local_pos: Tensor,
        seq_lens_upper_bound_np: np.ndarray[Any, Any],
        verify_draft_sampled: Tensor,
    ) -> Drawn:
        context = LogitsContext(
            expanded_idx_mapping=expanded_idx_mapping,
            idx_mapping=idx_mapping,
            idx_mapping_np=idx_mapping_np,
            expanded_local_pos=expanded_local_pos,
            input_ids=draft_sampled,
            pos=pos,
            seq_lens_upper_bound_np=seq_lens_upper_bound_np,
        )
        adjusted = self.processing.adjusted(logits, context)
        draft_ids, positions = read_step(
            adjusted,
            cu_num_logits,
            pos,
            draft_sampled,
            verify_draft_sampled,
            self.num_speculative_steps,
            lossless=self.policy.lossless,
        )
        batch = VerifyBatch(
            target_logits=adjusted,
            cu_num_logits=cu_num_logits,
            draft_token_ids=draft_ids,
            positions=positions,
            draft_logits=None if draft_logits is None else draft_logits[..., : logits.shape[1]],
            slot_ids=idx_mapping,
        )
        params = self.parameters.of(idx_mapping, idx_mapping_np)
        output = self.acceptor.verify(batch, params, self.policy)
        num_sampled = finish_step(output.token_ids, output.num_accepted)
        return self.processing.finished(adjusted, context), output.token_ids, num_sampled


SPECULATORS = "vllm.v1.worker.gpu.spec_decode"
DRAWING = (f"{SPECULATORS}.speculator", f"{SPECULATORS}.dspark.speculator")
"""The modules that draw drafts with `gumbel_sample`; an engine has imported those it uses."""


def draw_drafts_with(sampler: Sampler, parameters: Parameters) -> None:
    """Make this process's speculators draw with a sampler; verification then needs no draft logits.

    The speculators' CUDA graphs capture the draw.
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
        # The draft model reads the token next, even that of padding or of invalid logits.
        return output.token_ids.clamp_(min=0)

    _draw_with(draw)


def _draw_with(draw: Callable[..., Tensor]) -> None:
    for module in filter(None, map(sys.modules.get, DRAWING)):
        module.gumbel_sample = draw  # type: ignore[attr-defined]
