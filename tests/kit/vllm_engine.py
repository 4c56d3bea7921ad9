"""The part of a vLLM engine that verifies: slots, a step's batch and its sampler.

It is on a CUDA device if there is one. What tests give and get is on the CPU.
`pytest -p kit.vllm_engine` loads the plug-in as vLLM does, more than once.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
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
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BACKEND = "triton" if DEVICE.type == "cuda" else "reference"

if DEVICE.type == "cpu":
    current_platform.device_type = "cpu"
# Its memory is of vLLM's compiled part.
buffer_utils.is_uva_available = lambda: False
torch_utils.PIN_MEMORY = False

OWN = rejection_sampler.RejectionSampler
(plugin,) = [p for p in entry_points(group="vllm.general_plugins") if p.name == "acceptor"]
plugin.load()()
plugin.load()()


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the engine's `additional_config` says; tests write into it."""
    additional: dict[str, Any] = {"acceptor": {"backend": BACKEND}}
    config = SimpleNamespace(additional_config=additional)
    plugged = import_module("acceptor.app.vllm_plugin.rejection_sampler")
    monkeypatch.setattr(plugged, "get_current_vllm_config", lambda: config)
    return additional


def speculation(
    method: str = "standard", num_spec_tokens: int = NUM_SPEC_TOKENS
) -> SimpleNamespace:
    """A `SpeculativeConfig` as far as samplers look at it."""
    return SimpleNamespace(
        num_speculative_tokens=num_spec_tokens,
        enable_adaptive_verification=False,
        rejection_sample_method=method,
        draft_sample_method="probabilistic",
        synthetic_acceptance_rates=[0.75, 0.5],
        fly_window_size=1,
        fly_entropy_threshold=0.3,
        fly_entropy_top_k=3,
    )


class Engine:
    """Requests in slots that are not their places in the batch.

    The sampler is what an engine of this process gets, unless another one is made.
    """

    def __init__(
        self,
        params: Sequence[SamplingParams],
        speculates: SimpleNamespace | None = None,
        make_sampler: Any = None,
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        speculates = speculates or speculation()
        make_sampler = make_sampler or rejection_sampler.RejectionSampler
        self.num_reqs, self.num_rows = len(params), speculates.num_speculative_tokens + 1
        num_slots = self.num_reqs + 3
        self.slots = np.random.default_rng(1).permutation(num_slots)[: self.num_reqs]
        self.states = RequestState(num_slots, 16, 64, self.num_rows - 1, vocab_size, DEVICE)
        config = SimpleNamespace(reasoning_config=None)
        self.sampler = Sampler(config, num_slots, vocab_size, DEVICE, self.states)
        self.rejection_sampler = make_sampler(self.sampler, speculates, DEVICE)
        self.states.prefill_len.np[:] = PROMPT_LENGTH
        self.states.prompt_len.np[:] = PROMPT_LENGTH
        self.states.apply_staged_writes()
        for slot, wanted in zip(self.slots, params, strict=True):
            self.sampler.add_request(int(slot), wanted)
        self.sampler.apply_staged_writes()

    def step(self, *given: Any, **options: Any) -> Any:
        """The output of `call`, on the CPU."""
        output = self.call(*given, **options)()
        found = {f.name: getattr(output, f.name) for f in fields(output)}
        return replace(output, **{name: _on_host(value) for name, value in found.items()})

    def call(
        self,
        logits: Tensor,
        drafted: Tensor,
        draft_logits: Tensor | None,
        num_drafts: Tensor | None = None,
        invalid: Tensor | None = None,
    ) -> Callable[[], Any]:
        """What verifies drafts [num_reqs, K], or as many of each, by logits [num_reqs, K + 1, V].

        `invalid` [num_reqs, K + 1] marks what structured output takes no draft at.
        """
        if num_drafts is None:
            num_drafts = torch.full((self.num_reqs,), self.num_rows - 1)
        own = torch.arange(self.num_rows) <= num_drafts[:, None]
        cache = None
        if draft_logits is not None:
            shape = len(self.states.prefill_len.np), *draft_logits.shape[1:]
            cache = torch.full(shape, torch.nan, dtype=draft_logits.dtype, device=DEVICE)
            cache[torch.tensor(self.slots, device=DEVICE)] = draft_logits.to(DEVICE)
        return partial(
            self.rejection_sampler,
            logits.to(DEVICE)[own.to(DEVICE)],
            self._batch(own, drafted),
            cache,
            None if invalid is None else invalid[own].to(DEVICE),
        )

    def _batch(self, own: Tensor, drafted: Tensor) -> SimpleNamespace:
        """An `InputBatch` of the rows that are requests' own, [num_reqs, K + 1]."""
        rows, count = self.num_rows, int(own.sum())
        cu_num_logits = torch.cat((torch.zeros(1), own.sum(1).cumsum(0))).int()
        on_host = cu_num_logits.numpy()
        if self.rejection_sampler.enable_adaptive_verification:
            on_host = np.arange(0, self.num_reqs * rows + 1, rows, dtype=np.int32)
        local = torch.arange(rows, dtype=torch.int32).expand(self.num_reqs, -1)
        slots = torch.tensor(self.slots, dtype=torch.int32)
        last = torch.ones(self.num_reqs, 1, dtype=torch.int32)
        seq_lens = PROMPT_LENGTH + own.sum(1).int()
        return SimpleNamespace(
            num_reqs=self.num_reqs,
            input_ids=torch.cat((last, drafted.int().cpu()), dim=1)[own].to(DEVICE),
            positions=(local[own].long() + PROMPT_LENGTH).to(DEVICE),
            logits_indices=torch.arange(count, device=DEVICE),
            idx_mapping=slots.to(DEVICE),
            idx_mapping_np=self.slots,
            expanded_idx_mapping=slots[:, None].expand(-1, rows)[own].to(DEVICE),
            expanded_local_pos=local[own].to(DEVICE),
            cu_num_logits=cu_num_logits.to(DEVICE),
            cu_num_logits_np=on_host,
            seq_lens=seq_lens.to(DEVICE),
            seq_lens_cpu_upper_bound=seq_lens,
        )


def _on_host(value: Any) -> Any:
    if isinstance(value, tuple):
        return type(value)(*map(_on_host, value))
    return value.cpu() if isinstance(value, Tensor) else value
