"""The reference sampler: plain PyTorch in float64, the oracle for all other backends.

It loops over requests, waits for the device and needs no workspace.
"""

from typing import Any

import torch
from torch import Tensor

from ...core import SampleBatch, SamplingTensors, VerifyOutput, check_workspace
from ...core.call_memory import check_fits
from ...core.checks import check_device
from ..both_verbs import BothVerbs, Output, Verb
from ..checked import check_places
from ..inverse_maps import InverseMaps
from .draw import draw
from .outputs import clear, write_drawn
from .request import in_target_ids
from .statistics import adjust_logits, allowed_in, forbid
from .thresholds import log_probs
from .verify import verify_request


class ReferenceSampler(BothVerbs):
    """A `Sampler` for CPU and CUDA tensors and every policy, your own included."""

    def __init__(self) -> None:
        self._inverses = InverseMaps()

    def _run(
        self, verb: Verb, given: tuple[Any, ...], out: Output | None, workspace: Tensor | None
    ) -> Output:
        batch, params = given[:2]
        check_fits(batch, params)
        if workspace is not None:
            check_workspace(workspace, 0, batch.positions.device)
        if out is None:
            out = verb.empty_output(*given)
        else:
            verb.check_output(out, *given)
        check_device(batch.positions.device, "batch")
        check_places(batch, params)
        params = params.by_request()
        # This checks a map that is new.
        self._inverses.of(batch.draft_to_target, batch.vocab_size)
        clear(out)
        if isinstance(out, VerifyOutput):
            for request in range(batch.num_reqs):
                verify_request(batch, params, given[2], request, out)
        else:
            write_drawn(out, batch, params, *_draw(batch, params))
        return out

    def _num_bytes(self, *_: object) -> int:
        return 0


def _draw(batch: SampleBatch, params: SamplingTensors) -> tuple[Tensor, Tensor]:
    """The rows after bias, penalties and masks, and the token drawn from each."""
    requests = torch.arange(batch.num_reqs, device=batch.logits.device)
    logits, recipe = batch.logits, params.draft
    if batch.draft_index is None:
        recipe = params.target
        logits = adjust_logits(batch, params, requests, logits)
    logits = forbid(logits, allowed_in(batch, 0, *logits.shape))
    law = log_probs(logits, recipe, requests)
    if batch.draft_to_target is not None:
        law = in_target_ids(law, batch.vocab_size, batch.draft_to_target)
    if recipe.all_greedy:
        return logits, law.argmax(dim=-1)
    positions = batch.positions.long()
    draft_indices = torch.full_like(positions, batch.draft_index or 0)
    return logits, draw(law, params.seeds, positions, draft_indices, batch.stream)
