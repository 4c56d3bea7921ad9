"""Hypothesis strategies for everything a sampler is given."""

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from acceptor.core import LogprobsMode, Recipe, SamplingParams
from kit.requests import Layout, Request

seeds = st.one_of(st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))

_recipe_values: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from([1.0, 0.0, 0.3, 0.7, 1.5]),
    "min_p": st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    "top_k": st.sampled_from([0, -1, 1, 2, 3, 7, 1000]),
    "top_p": st.sampled_from([1.0, 0.95, 0.6, 0.2, 1e-6]),
}


def recipes() -> st.SearchStrategy[Recipe]:
    """Every mix of temperature and filters, greedy and off included."""
    return st.builds(Recipe, **_recipe_values)


def sampling_params(vocab_size: int) -> st.SearchStrategy[SamplingParams]:
    """Every mix of what one request may want; it has a seed."""
    biases = st.one_of(st.sampled_from([-math.inf, 0.5, 2.0]), st.floats(-3, 3, width=32))
    return st.builds(
        SamplingParams,
        **_recipe_values,
        logit_bias=st.dictionaries(st.integers(0, 2 * vocab_size), biases, max_size=2),
        repetition_penalty=st.sampled_from([1.0, 1.0, 0.7, 1.6]),
        presence_penalty=st.sampled_from([0.0, 0.0, -0.5, 0.5]),
        frequency_penalty=st.sampled_from([0.0, 0.0, -0.25, 0.75]),
        seed=seeds,
        logprobs=st.sampled_from([None, None, 0, 1, min(3, vocab_size)]),
        logprobs_mode=st.sampled_from(LogprobsMode),
        draft=st.one_of(st.none(), recipes()),
    )


BAD_VALUES = {"NaN": math.nan, "+inf": math.inf, "only -inf": -math.inf}


@st.composite
def logit_rows(
    draw: st.DrawFn, num_rows: int, vocab_size: int, dtype: torch.dtype, *, bad: bool
) -> Tensor:
    """Logits of several rows: spread out, tied, with holes, flat or peaked; at times unusable."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    rows = 2 * torch.randn(num_rows, vocab_size, generator=generator)
    look = draw(st.sampled_from(["spread", "tied", "holes", "flat", "peaked"]))
    if look == "tied":
        rows = rows.round()
    elif look == "holes":
        holes = torch.rand(num_rows, vocab_size, generator=generator) < 0.4
        holes[torch.arange(num_rows), torch.arange(num_rows) % vocab_size] = False
        rows = rows.masked_fill(holes, -math.inf)
    elif look == "flat":
        rows = torch.zeros_like(rows)
    elif look == "peaked":
        rows[:, draw(st.integers(0, vocab_size - 1))] += 20
    if bad and num_rows and draw(st.integers(0, 3)) == 0:
        spoil(rows[draw(st.integers(0, num_rows - 1))], draw(st.sampled_from(sorted(BAD_VALUES))))
    return rows.to(dtype)


def spoil(row: Tensor, how: str) -> None:
    """Make a row of logits unusable, in place."""
    if how == "only -inf":
        row.fill_(BAD_VALUES[how])
    else:
        row[len(row) // 2] = BAD_VALUES[how]


@st.composite
def requests(
    draw: st.DrawFn,
    vocab_size: int,
    draft_vocab_size: int,
    dtype: torch.dtype = torch.float32,
    *,
    bad: bool = True,
) -> Request:
    """One request with 0 to 4 draft tokens; with `bad`, its ids and rows may be unusable."""
    num_drafts = draw(st.integers(0, 4))
    target_logits = draw(logit_rows(num_drafts + 1, vocab_size, dtype, bad=bad))
    ids = st.integers(0, min(vocab_size, draft_vocab_size) - 1)
    if bad:
        ids = st.one_of(ids, ids, st.sampled_from([-1, -2, vocab_size, -(2**31), 2**31 - 1]))
    likely = target_logits.nan_to_num(0.0)[:num_drafts].argmax(dim=-1).tolist()
    drafts = [draw(st.one_of(st.just(token_id), ids)) for token_id in likely]
    tokens = st.lists(st.integers(0, vocab_size - 1), max_size=3).map(tuple)
    return Request(
        params=draw(sampling_params(vocab_size)),
        target_logits=target_logits,
        draft_token_ids=tuple(drafts),
        draft_logits=draw(logit_rows(num_drafts, draft_vocab_size, dtype, bad=bad)),
        position=draw(st.sampled_from([0, 1, 17, 2**31 - 100])),
        prompt=draw(tokens),
        output=draw(tokens),
    )


@st.composite
def batches(draw: st.DrawFn, max_size: int = 4, *, bad: bool = True) -> list[Request]:
    """Requests that fit one batch: the same vocabularies and dtype."""
    vocab_size = draw(st.sampled_from([1, 2, 5, 33, 513]))
    draft_vocab_size = draw(st.sampled_from([vocab_size, max(vocab_size - 1, 1)]))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    one = requests(vocab_size, draft_vocab_size, dtype, bad=bad)
    return draw(st.lists(one, min_size=1, max_size=max_size))


@st.composite
def layouts(draw: st.DrawFn, num_reqs: int, *, one_hot_drafts: bool) -> Layout:
    """Any place in memory for so many requests."""
    slots = draw(st.one_of(st.none(), st.permutations(range(num_reqs + 2))))
    return Layout(
        spare_drafts=draw(st.integers(0, 2)),
        padding=draw(st.sampled_from([0, 1, 7])),
        slots=None if slots is None else tuple(slots[:num_reqs]),
        spare_slots=draw(st.integers(0, 1)),
        id_dtype=draw(st.sampled_from([torch.int32, torch.int64])),
        one_hot_drafts=one_hot_drafts,
    )
