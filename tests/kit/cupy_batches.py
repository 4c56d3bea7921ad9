"""Random batches of every kind of row, recipe and flaw, for CUDA kernels that run on the host."""

import math
import random
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from acceptor.core import (
    LogprobsMode,
    Recipe,
    SamplingParams,
    SamplingTensors,
    TokenCounts,
    VerifyBatch,
    pack_allowed,
)

KINDS = ("lm", "zipf", "flat", "sharp", "ties", "equal", "zeros", "masked")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@frozen
class Form:
    """What a batch is like.

    Attributes:
        vocab_size: ids of the target.
        draft_vocab_size: ids of the draft.
        dtypes: of the target's and the draft's logits.
        num_reqs: its requests.
        num_drafts: the longest draft.
        filtered: requests may have filters.
        adjusted: requests may have penalties and biases.
        masked: rows have masks of allowed tokens, or some of them.
        logprobs: requests may ask for logprobs.
        kinds: of rows, one a request.
    """

    vocab_size: int
    draft_vocab_size: int
    dtypes: tuple[torch.dtype, torch.dtype] = (torch.bfloat16, torch.bfloat16)
    num_reqs: int = 4
    num_drafts: int = 3
    filtered: bool = True
    adjusted: bool = False
    masked: bool = False
    logprobs: bool = False
    kinds: tuple[str, ...] = KINDS

    @classmethod
    def random(cls, rnd: random.Random) -> "Form":
        """Any form."""
        vocab_size = rnd.choice([1, 5, 33, 513, 1301, 3000, 4096])
        return cls(
            vocab_size=vocab_size,
            draft_vocab_size=max(1, vocab_size - rnd.choice([0, 0, 1, 7])),
            dtypes=(rnd.choice(DTYPES), rnd.choice(DTYPES)),
            num_drafts=rnd.choice([3, 3, 3, 0, 1, 6]),
            filtered=rnd.random() < 0.7,
            adjusted=rnd.random() < 0.3,
            masked=rnd.random() < 0.3,
            logprobs=rnd.random() < 0.3,
        )


def logits_of(kind: str, num_rows: int, vocab_size: int, noise: torch.Generator) -> Tensor:
    """Rows of one kind: [num_rows, vocab_size]."""
    rows = torch.randn(num_rows, vocab_size, generator=noise)
    if kind == "lm":
        peaks = torch.randint(vocab_size, (num_rows, min(8, vocab_size)), generator=noise)
        heights = 6 + 14 * torch.rand(peaks.shape, generator=noise)
        return (2 * rows).scatter_add_(1, peaks, heights)
    if kind == "zipf":
        ranks = torch.rand(num_rows, vocab_size, generator=noise).argsort(-1) + 1
        return 0.5 * rows - 1.1 * ranks.float().log()
    if kind == "masked":
        rows *= 3
        chance = torch.rand(rows.shape, generator=noise)
        return rows.masked_fill(chance < 0.5, -1e9).masked_fill(chance < 0.3, -math.inf)
    changed = {
        "flat": rows,
        "sharp": 8 * rows,
        "ties": (2 * rows).round(),
        "equal": torch.full_like(rows, 1.37),
        "zeros": torch.zeros_like(rows),
    }
    return changed[kind]


def random_batch(seed: int, form: Form | None = None) -> tuple[VerifyBatch, SamplingTensors]:
    """A batch of that form, or of any, some of whose ids and rows are bad."""
    rnd, noise = random.Random(seed), torch.Generator().manual_seed(seed)  # noqa: S311
    form = form or Form.random(rnd)
    vocab_size, num_drafts = form.vocab_size, form.num_drafts
    targets, drafts, starts = [], [], [0]
    ids = torch.full((form.num_reqs, num_drafts), -1)
    for request in range(form.num_reqs):
        length = rnd.choice([0, num_drafts, num_drafts, max(num_drafts - 1, 0)])
        target, draft = _rows(rnd.choice(form.kinds), form, noise)
        for place in range(length):
            ids[request, place] = _drafted(draft[place], vocab_size, rnd, noise)
        _spoil(target, draft, rnd)
        targets.append(target[: length + 1])
        drafts.append(draft)
        starts.append(starts[-1] + length + 1)
    padding = rnd.choice([0, 3, 8, 1])
    batch = VerifyBatch(
        target_logits=_padded(torch.cat(targets), padding),
        cu_num_logits=torch.tensor(starts),
        draft_token_ids=ids,
        positions=torch.randint(10_000, (form.num_reqs,), generator=noise),
        draft_logits=None if rnd.random() < 0.15 else _padded(torch.stack(drafts), padding),
        token_counts=_counts(form, noise) if form.adjusted else None,
        **_masks(form, starts[-1], noise),
    )
    return batch, SamplingTensors.stack([_params(form, rnd) for _ in range(form.num_reqs)])


def _masks(form: Form, num_rows: int, noise: torch.Generator) -> dict[str, Any]:
    if not form.masked:
        return {}
    allowed = torch.rand(num_rows, form.vocab_size, generator=noise) < 0.5
    rows = torch.randint(-1, num_rows, (num_rows,), generator=noise)
    return {"allowed_tokens": pack_allowed(allowed), "allowed_rows": rows}


def _rows(kind: str, form: Form, noise: torch.Generator) -> tuple[Tensor, Tensor]:
    target = logits_of(kind, form.num_drafts + 1, form.vocab_size, noise)
    draft = target[: form.num_drafts, : form.draft_vocab_size].clone()
    if kind not in ("equal", "zeros", "masked"):
        draft += 0.7 * torch.randn(draft.shape, generator=noise)
    return target.to(form.dtypes[0]), (draft.round() if kind == "ties" else draft).to(
        form.dtypes[1]
    )


def _drafted(row: Tensor, vocab_size: int, rnd: random.Random, noise: torch.Generator) -> int:
    if rnd.random() < 0.2:
        return rnd.choice([0, vocab_size - 1, -1, vocab_size, -5])
    law = (row.float() * rnd.choice([2.0, 1.0])).nan_to_num(neginf=-1e9).softmax(-1)
    return int(torch.multinomial(law, 1, generator=noise))


def _spoil(target: Tensor, draft: Tensor, rnd: random.Random) -> None:
    row = target[rnd.randrange(len(target))]
    if rnd.random() < 0.08:
        row[rnd.randrange(len(row))] = rnd.choice([math.nan, math.inf])
    elif rnd.random() < 0.05:
        row.fill_(-math.inf)
    if len(draft) and rnd.random() < 0.08:
        draft[rnd.randrange(len(draft)), 0] = math.nan


def _padded(rows: Tensor, padding: int) -> Tensor:
    wide = rows.new_zeros(*rows.shape[:-1], rows.shape[-1] + padding)
    wide[..., : rows.shape[-1]] = rows
    return wide[..., : rows.shape[-1]]


def _counts(form: Form, noise: torch.Generator) -> TokenCounts:
    counts = TokenCounts.empty(form.num_reqs, form.vocab_size)
    shape = counts.prompt_mask.shape
    counts.prompt_mask.copy_(torch.rand(shape, generator=noise) < 0.05)
    counts.output_counts.copy_((torch.rand(shape, generator=noise) < 0.05) * 2)
    return counts


def _recipe(form: Form, rnd: random.Random) -> dict[str, Any]:
    recipe: dict[str, Any] = {"temperature": rnd.choice([1.0, 0.8, 0.3, 1.5, 0.0])}
    if form.filtered and rnd.random() < 0.6:
        recipe["top_k"] = rnd.choice([1, 3, 50, 300, 1000])
    if form.filtered and rnd.random() < 0.6:
        recipe["top_p"] = rnd.choice([0.9, 0.95, 0.5, 0.2, 0.999])
    if form.filtered and rnd.random() < 0.3:
        recipe["min_p"] = rnd.choice([0.05, 0.01, 0.3])
    return recipe


def _params(form: Form, rnd: random.Random) -> SamplingParams:
    wanted = _recipe(form, rnd)
    if form.adjusted:
        wanted["repetition_penalty"] = rnd.choice([1.0, 1.3, 0.7])
        wanted["frequency_penalty"] = rnd.choice([0.0, 0.3])
        wanted["presence_penalty"] = rnd.choice([0.0, 0.4])
        ids = [rnd.randrange(form.vocab_size) for _ in range(2)]
        wanted["logit_bias"] = dict(zip(ids, (2.0, -math.inf), strict=True))
    if form.logprobs:
        wanted["logprobs"] = rnd.choice([None, 0, 1, min(20, form.vocab_size)])
        wanted["logprobs_mode"] = rnd.choice(list(LogprobsMode))
    draft = None if rnd.random() < 0.5 else Recipe(**_recipe(form, rnd))
    return SamplingParams(seed=rnd.getrandbits(64), draft=draft, **wanted)
