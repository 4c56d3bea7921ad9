"""The reference sampler: plain PyTorch in float64, the oracle all other backends are held to.

It loops over requests, waits for the device and needs no workspace.
"""

import torch
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.call_memory import (
    check_sample_fits,
    check_sample_output,
    check_verify_fits,
    check_verify_output,
    check_workspace,
    empty_sample_output,
    empty_verify_output,
)
from ...core.output import SampleOutput, VerifyOutput
from ...core.policies import Policy
from ...core.ports import Sampler
from ...core.sampling_tensors import SamplingTensors
from ..checked import check_slots
from ..inverse_maps import InverseMaps
from .draw import draw
from .masks import allowed_in, forbid
from .outputs import write_drawn, write_verified
from .request import in_target_ids
from .statistics import SeenTokens, adjust_logits
from .thresholds import log_probs
from .verify import verify_request


class ReferenceSampler(Sampler):
    """A `Sampler` for CPU and CUDA tensors and every policy, also ones it has never seen."""

    def __init__(self) -> None:
        self._inverses = InverseMaps()

    def verify(
        self,
        batch: VerifyBatch,
        params: SamplingTensors,
        policy: Policy,
        *,
        out: VerifyOutput | None = None,
        workspace: Tensor | None = None,
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        check_verify_fits(batch, params)
        if workspace is not None:
            check_workspace(workspace, 0, batch.target_logits.device)
        if out is None:
            out = empty_verify_output(batch, params, policy)
        else:
            check_verify_output(out, batch, params, policy)
        check_slots(batch, params)
        params = params.by_request()
        # Maps that are new are checked.
        self._inverses.of(batch.draft_to_target, batch.vocab_size)
        outcomes = [verify_request(batch, params, policy, r) for r in range(batch.num_reqs)]
        write_verified(out, params, outcomes)
        return out

    def sample(
        self,
        batch: SampleBatch,
        params: SamplingTensors,
        *,
        out: SampleOutput | None = None,
        workspace: Tensor | None = None,
    ) -> SampleOutput:
        """See `Sampler.sample`."""
        check_sample_fits(batch, params)
        if workspace is not None:
            check_workspace(workspace, 0, batch.logits.device)
        if out is None:
            out = empty_sample_output(batch, params)
        else:
            check_sample_output(out, batch, params)
        check_slots(batch, params)
        params = params.by_request()
        self._inverses.of(batch.draft_to_target, batch.target_vocab_size or 0)
        requests = torch.arange(batch.num_reqs, device=batch.logits.device)
        logits = batch.logits
        if batch.draft_index is None:
            logits = adjust_logits(batch.logits, params, requests, _seen(batch, params, requests))
        logits = forbid(logits, allowed_in(batch, 0, *logits.shape))
        drawn = _draw_rows(batch, params, requests, logits)
        write_drawn(out, batch, params, logits, drawn)
        return out


def _seen(batch: SampleBatch, params: SamplingTensors, requests: Tensor) -> SeenTokens | None:
    if params.penalties is None or batch.token_counts is None:
        return None
    slots = requests if batch.slot_ids is None else batch.slot_ids.long()
    return SeenTokens.before_rows(batch.token_counts, slots)


def _draw_rows(
    batch: SampleBatch, params: SamplingTensors, requests: Tensor, logits: Tensor
) -> Tensor:
    recipe = params.target if batch.draft_index is None else params.draft
    law = log_probs(logits, recipe, requests)
    if batch.draft_to_target is not None:
        assert batch.target_vocab_size is not None
        law = in_target_ids(law, batch.target_vocab_size, batch.draft_to_target)
    if recipe.all_greedy:
        return law.argmax(dim=-1)
    positions = batch.positions.long()
    draft_indices = torch.full_like(positions, batch.draft_index or 0)
    return draw(law, params.seeds, positions, draft_indices, batch.stream)
