"""Drafts for a case: really drawn from the draft by the backend itself, or arbitrary.

It refuses to hide a bad draw: every draw is compared with the oracle.
"""

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.ports import Sampler
from .case import Case
from .findings import Findings
from .inputs import Inputs
from .judge import judge_sample


@frozen(eq=False)
class Drafted:
    """A batch that is ready to be verified, and what comparing its draft draws gave."""

    batch: VerifyBatch
    findings: Findings


def draft(case: Case, inputs: Inputs, sampler: Sampler) -> Drafted:
    """Draw the drafts of a case and put its batch together."""
    rng = np.random.default_rng((case.seed, 1))
    width = max(case.num_draft_tokens, default=0) + 2 * (case.has("room") and rng.random() < 0.5)
    token_ids = torch.full((len(case.num_draft_tokens), width), -1, device=inputs.slot_ids.device)
    findings = Findings()
    drawn = case.drafter != "one-hot" and not case.has("arbitrary drafts")
    for place in range(1, max(case.num_draft_tokens, default=0) + 1):
        if drawn:
            batch = _draft_batch(case, inputs, place)
            output = sampler.sample(batch, inputs.params)
            findings += judge_sample(batch, inputs.params, output)
            token_ids[:, place - 1] = output.token_ids
    _overwrite(case, inputs, token_ids, rng, drawn=drawn)
    return Drafted(_verify_batch(case, inputs, token_ids), findings)


def _draft_batch(case: Case, inputs: Inputs, place: int) -> SampleBatch:
    return SampleBatch(
        logits=inputs.draft_logits[inputs.slot_ids.long(), place - 1],
        positions=inputs.positions + (place - 1),
        draft_index=place,
        draft_stream=case.policy.draft_stream,
        draft_to_target=inputs.draft_to_target,
        target_vocab_size=None if inputs.draft_to_target is None else case.vocab_size,
    )


def _overwrite(
    case: Case, inputs: Inputs, token_ids: Tensor, rng: np.random.Generator, *, drawn: bool
) -> None:
    """Fill in what was not drawn, damage what the case wants damaged, end each draft."""
    bad_ids = (-1, -2, case.vocab_size, case.vocab_size + 7, -(2**31), 2**31 - 1)
    likely = inputs.target_logits.argmax(dim=-1).tolist() if not drawn else []
    starts = inputs.cu_num_logits.tolist()
    for request, count in enumerate(case.num_draft_tokens):
        token_ids[request, count:] = -1
        for place, token_id in enumerate(token_ids[request, :count].tolist()):
            chosen = token_id
            if not drawn and rng.random() < 0.5:
                chosen = likely[starts[request] + place]
            elif token_id < 0:
                chosen = int(rng.integers(case.vocab_size))
            if case.has("bad ids") and rng.random() < 0.2:
                chosen = int(rng.choice(bad_ids))
            if chosen != token_id:
                token_ids[request, place] = chosen


def _verify_batch(case: Case, inputs: Inputs, token_ids: Tensor) -> VerifyBatch:
    without = case.drafter == "one-hot"
    return VerifyBatch(
        target_logits=inputs.target_logits,
        cu_num_logits=inputs.cu_num_logits,
        draft_token_ids=token_ids.to(inputs.cu_num_logits.dtype),
        positions=inputs.positions,
        draft_logits=None if without else inputs.draft_logits,
        slot_ids=inputs.slot_ids if case.has("slots") else None,
        draft_to_target=None if without else inputs.draft_to_target,
        token_counts=inputs.token_counts if _needs_counts(case) else None,
    )


def _needs_counts(case: Case) -> bool:
    return case.has("penalties") or case.has("room")
