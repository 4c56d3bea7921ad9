"""The part of a vLLM engine that verifies, on the CPU: slots, a step's batch and its sampler.

`pytest -p kit.vllm_engine` loads the plug-in as vLLM does, more than once.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams
from vllm.utils import torch_utils
from vllm.v1.worker.gpu import buffer_utils
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.spec_decode import rejection_sampler
from vllm.v1.worker.gpu.states import RequestState

VOCAB_SIZE, NUM_SPEC_TOKENS, PROMPT_LENGTH = 8, 2, 3
CPU = torch.device("cpu")

current_platform.device_type = "cpu"
buffer_utils.is_uva_available = lambda: False
torch_utils.PIN_MEMORY = False

OWN = rejection_sampler.RejectionSampler
(plugin,) = [p for p in entry_points(group="vllm.general_plugins") if p.name == "acceptor"]
plugin.load()()
plugin.load()()


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the engine's `additional_config` says; tests write into it."""
    additional: dict[str, Any] = {"acceptor": {"backend": "reference"}}
    config = SimpleNamespace(additional_config=additional)
    plugged = import_module("acceptor.app.vllm_plugin.rejection_sampler")
    monkeypatch.setattr(plugged, "get_current_vllm_config", lambda: config)
    return additional


def speculation(method: str = "standard") -> SimpleNamespace:
    """A `SpeculativeConfig` as far as samplers look at it."""
    return SimpleNamespace(
        num_speculative_tokens=NUM_SPEC_TOKENS,
        enable_adaptive_verification=False,
        rejection_sample_method=method,
        draft_sample_method="probabilistic",
        synthetic_acceptance_rates=[0.75, 0.5],
        fly_window_size=1,
        fly_entropy_threshold=0.3,
        fly_entropy_top_k=3,
    )


class Engine:
    """Requests in slots that are not their places in the batch."""

    def __init__(self, params: Sequence[SamplingParams], make_sampler: Any, method: str) -> None:
        self.num_reqs = len(params)
        self.slots = np.random.default_rng(1).permutation(self.num_reqs + 3)[: self.num_reqs]
        self.states = RequestState(self.num_reqs + 3, 16, 64, NUM_SPEC_TOKENS, VOCAB_SIZE, CPU)
        config = SimpleNamespace(reasoning_config=None)
        self.sampler = Sampler(config, self.num_reqs + 3, VOCAB_SIZE, CPU, self.states)
        self.rejection_sampler = make_sampler(self.sampler, speculation(method), CPU)
        self.states.prefill_len.np[:] = PROMPT_LENGTH
        self.states.prompt_len.np[:] = PROMPT_LENGTH
        self.states.apply_staged_writes()
        for slot, wanted in zip(self.slots, params, strict=True):
            self.sampler.add_request(int(slot), wanted)
        self.sampler.apply_staged_writes()

    def step(
        self,
        logits: Tensor,
        drafted: Tensor,
        draft_logits: Tensor | None,
        num_drafts: Tensor | None = None,
        invalid: Tensor | None = None,
    ) -> Any:
        """Verify drafts [num_reqs, K], or as many of each, by logits [num_reqs, K + 1, V].

        `invalid` [num_reqs, K + 1] marks what structured output takes no draft at.
        """
        rows = NUM_SPEC_TOKENS + 1
        if num_drafts is None:
            num_drafts = torch.full((self.num_reqs,), NUM_SPEC_TOKENS)
        local = torch.arange(rows, dtype=torch.int32).expand(self.num_reqs, -1)
        own = local <= num_drafts[:, None]
        cu_num_logits = torch.cat((torch.zeros(1), own.sum(1).cumsum(0))).int()
        on_host = cu_num_logits.numpy()
        if self.rejection_sampler.enable_adaptive_verification:
            on_host = np.arange(0, self.num_reqs * rows + 1, rows, dtype=np.int32)
        slots = torch.tensor(self.slots, dtype=torch.int32)
        last = torch.ones(self.num_reqs, 1, dtype=torch.int32)
        seq_lens = PROMPT_LENGTH + own.sum(1).int()
        batch = SimpleNamespace(
            num_reqs=self.num_reqs,
            input_ids=torch.cat((last, drafted.int()), dim=1)[own],
            positions=local[own].long() + PROMPT_LENGTH,
            logits_indices=torch.arange(int(own.sum())),
            idx_mapping=slots,
            idx_mapping_np=self.slots,
            expanded_idx_mapping=slots[:, None].expand(-1, rows)[own],
            expanded_local_pos=local[own],
            cu_num_logits=cu_num_logits,
            cu_num_logits_np=on_host,
            seq_lens=seq_lens,
            seq_lens_cpu_upper_bound=seq_lens,
        )
        cache = None
        if draft_logits is not None:
            cache = torch.full((self.num_reqs + 3, *draft_logits.shape[1:]), torch.nan)
            cache[slots.long()] = draft_logits
        invalid = None if invalid is None else invalid[own]
        return self.rejection_sampler(logits[own], batch, cache, invalid)
