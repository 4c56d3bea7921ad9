"""Drafts for a case: really drawn from the draft by the backend itself, or arbitrary.

It refuses to hide a bad draw: every draw is compared with the oracle.
"""

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ...core.batch import PADDING_TOKEN_ID, VerifyBatch
from ...core.ports import Sampler
from .case import Case
from .findings import Findings
from .inputs import Inputs
from .moved import stacked
from .sampling import draft_batch, draw, draw_once


@frozen(eq=False)
class Drafted:
    """A batch that is ready to be verified, and what comparing its draft draws gave."""

    batch: VerifyBatch
    findings: Findings


def drafted_batch(case: Case, inputs: Inputs, sampler: Sampler) -> Drafted:
    """Draw the drafts of a case and put its batch together."""
    if not _must_be_drawn(case):
        return Drafted(arbitrary_batch(case, inputs), Findings())
    token_ids = _no_drafts(case, inputs)
    params = stacked(inputs.wishes, token_ids.device)
    findings = Findings()
    for place in range(1, max(case.num_draft_tokens, default=0) + 1):
        batch = draft_batch(case, inputs, place)
        if place == 1:
            drawn = draw(case, batch, inputs.wishes, sampler)
        else:
            drawn = draw_once(batch, params, sampler)
        token_ids[:, place - 1] = drawn.token_ids
        findings += drawn.findings
    return Drafted(_verify_batch(case, inputs, _finish(case, token_ids)), findings)


def _must_be_drawn(case: Case) -> bool:
    # Where both models are certain of one token, a rejection is impossible, unless the draft was
    # arbitrary: then p - q is nothing but rounding, and there is no right answer.
    certain = case.logits == "large" or case.has("extreme temperature")
    return case.drafter != "one-hot" and (certain or not case.has("arbitrary drafts"))


def arbitrary_batch(case: Case, inputs: Inputs) -> VerifyBatch:
    """A batch whose drafts nobody drew: half of them the target's most likely tokens."""
    token_ids = _no_drafts(case, inputs)
    rng = np.random.default_rng((case.seed, 4))
    likely = inputs.target_logits.argmax(dim=-1)
    starts = inputs.cu_num_logits.tolist()
    for request, count in enumerate(case.num_draft_tokens):
        other = torch.from_numpy(rng.integers(case.vocab_size, size=count)).to(likely)
        keep = torch.from_numpy(rng.random(count) < 0.5).to(likely.device)
        of_request = likely[starts[request] : starts[request] + count]
        token_ids[request, :count] = torch.where(keep, of_request, other)
    return _verify_batch(case, inputs, _finish(case, token_ids))


def _no_drafts(case: Case, inputs: Inputs) -> Tensor:
    longest = max(case.num_draft_tokens, default=0)
    shape = (len(case.num_draft_tokens), longest + 2 * case.has("room"))
    return torch.full(shape, PADDING_TOKEN_ID, device=inputs.slot_ids.device)


def _finish(case: Case, token_ids: Tensor) -> Tensor:
    """End each draft, replace failed draws, damage ids if the case wants it."""
    rng = np.random.default_rng((case.seed, 5))
    bad_ids = (-1, -1, -1, -2, case.vocab_size, case.vocab_size + 7, -(2**31), 2**31 - 1)
    rows = token_ids.tolist()
    for row, count in zip(rows, case.num_draft_tokens, strict=True):
        row[count:] = [PADDING_TOKEN_ID] * (len(row) - count)
        for place in range(count):
            if row[place] < 0:
                row[place] = int(rng.integers(case.vocab_size))
            if case.has("bad ids") and rng.random() < 0.1:
                row[place] = int(rng.choice(bad_ids))
    return torch.tensor(rows, dtype=torch.int64, device=token_ids.device).view(token_ids.shape)


def _verify_batch(case: Case, inputs: Inputs, token_ids: Tensor) -> VerifyBatch:
    without = case.drafter == "one-hot"
    counted = case.has("penalties") or case.has("room")
    return VerifyBatch(
        target_logits=inputs.target_logits,
        cu_num_logits=inputs.cu_num_logits,
        draft_token_ids=token_ids.to(inputs.cu_num_logits.dtype),
        positions=inputs.positions,
        draft_logits=None if without else inputs.draft_logits,
        slot_ids=inputs.slot_ids if case.has("slots") else None,
        draft_to_target=None if without else inputs.draft_to_target,
        token_counts=inputs.token_counts if counted else None,
    )
