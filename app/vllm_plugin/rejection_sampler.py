"""vLLM's rejection sampler with acceptor's verification inside."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor
from vllm.config import get_current_vllm_config
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

from ...backends import load_sampler
from ...core import Stream, UnavailableError, VerifyBatch
from .drafting import draw_drafts_as_vllm, draw_drafts_with
from .parameters import Parameters
from .processing import Processing
from .settings import PluginSettings, plugin_settings
from .step_kernels import finish_step, read_step

Drawn = tuple[Tensor, Tensor, Tensor]


def sampler_factory(own: Callable[..., Any]) -> Callable[..., Any]:
    """What makes the rejection sampler of an engine: acceptor's where its config names acceptor."""

    def make(*args: Any, **options: Any) -> Any:
        draw_drafts_as_vllm()
        settings = plugin_settings(get_current_vllm_config().additional_config)
        if settings is None:
            return own(*args, **options)
        return AcceptorSampler(settings, *args, **options)

    make.instead_of = own  # type: ignore[attr-defined]
    return make


class AcceptorSampler(RejectionSampler):  # type: ignore[misc]  # vLLM is not there for the checker
    """Chunks, logprobs and outputs are vLLM's; the law is a policy's, from logits as they come.

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
