"""Requests and their rows inside kernels: their addresses and their recipes.

A request has `variant.num_rows` rows of statistics: the target's; then the draft's, if draft logits
are read; then, under relaxed acceptance, the target's once more.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Request(NamedTuple):
    """One request, see `open_request`."""

    index: Any
    num_drafts: Any
    """The draft's length up to the first bad id."""
    flagged: Any
    """1 if that id is out of range."""
    greedy: Any
    seed: Any
    position: Any
    """The position that its first row decides."""


class Row(NamedTuple):
    """One row of statistics, see `open_row`."""

    request: Any
    start: Any
    """The request's first row of target logits, int64."""
    place: Any
    """Its index among the request's rows of its kind."""
    is_draft: Any
    exists: Any
    """Whether its request has this row."""
    slot: Any
    """Its index among all rows of statistics, int64."""
    source: Any
    """The row that holds its block statistics, int64: itself, unless it is the target's again."""
    mask: Any
    """The index of its mask, int64; negative for none, as for drafts."""
    penalties: Any
    """Repetition, 1 / repetition, presence and frequency, neutral where there are none."""
    adjusts: Any
    """Whether bias and penalties apply."""


class Recipe(NamedTuple):
    """The recipe that turns a row's logits into a law."""

    inverse: Any
    """1 / temperature; 1 where greedy."""
    greedy: Any
    min_p: Any
    top_k: Any
    """0 if it does not cut."""
    top_p: Any


@triton.jit
def request_slot(call, request):
    """The request's slot in draft logits and token counts, int64."""
    slot = request.to(tl.int64)
    if call.requests.slot_ids is not None:
        slot = tl.load(call.requests.slot_ids + slot * call.requests.slots_step).to(tl.int64)
    return slot


@triton.jit
def first_row(call, request):
    """A request's first row, and how many it has: (int64, int32)."""
    start = request.to(tl.int64)
    num_rows = request * 0 + 1
    if call.target.cu_num_logits is not None:
        starts = call.target.cu_num_logits + start * call.target.starts_step
        start = tl.load(starts).to(tl.int64)
        end = tl.load(starts + call.target.starts_step).to(tl.int64)
        num_rows = (end - start).to(tl.int32)
    return start, num_rows


@triton.jit
def drafted_token(call, request, place, there):
    """The draft token that a row tests, 0 if there is none: int32, shaped like place."""
    token = place * 0
    if call.requests.draft_token_ids is not None:
        token = tl.load(draft_places(call, request, place), mask=there, other=0).to(tl.int32)
    return token


@triton.jit
def draft_places(call, request, place):
    """The addresses of a request's draft tokens."""
    ids = call.requests.draft_token_ids + request.to(tl.int64) * call.requests.draft_stride
    return ids + place.to(tl.int64) * call.requests.draft_step


@triton.jit
def open_request(call, index):
    """The request of this index."""
    NUM_DRAFTS: tl.constexpr = call.variant.num_drafts
    _start, num_rows = first_row(call, index)
    num_drafts = num_rows * 0
    flagged = num_rows * 0
    if NUM_DRAFTS > 0:
        WIDTH: tl.constexpr = triton.next_power_of_2(NUM_DRAFTS)
        place = tl.arange(0, WIDTH)
        limit = tl.maximum(tl.minimum(num_rows - 1, NUM_DRAFTS), 0)
        tokens = draft_places(call, index, place)
        token_id = tl.load(tokens, mask=place < limit, other=-1).to(tl.int64)
        good = (token_id >= 0) & (token_id < call.target.vocab_size)
        num_drafts = tl.min(tl.where(good, WIDTH, place), 0)
        out_of_range = (place == num_drafts) & (place < limit) & (token_id != -1)
        flagged = tl.max(out_of_range.to(tl.int32), 0)
    greedy = temperature_of(call, call.target_recipe, index) == 0.0
    seed = tl.load(call.entries.seeds + entry_of(call, index))
    positions = call.requests.positions + index.to(tl.int64) * call.requests.positions_step
    return Request(index, num_drafts, flagged, greedy, seed, tl.load(positions).to(tl.int32))


@triton.jit
def open_row(call, slot):
    """The row of statistics of this index."""
    ROWS: tl.constexpr = call.variant.num_rows
    TARGETS: tl.constexpr = call.variant.num_drafts + 1
    request = slot // ROWS
    index = slot % ROWS
    start, num_rows = first_row(call, request)
    place = index
    is_draft = index < 0
    if call.draft.logits is not None:
        is_draft = (index >= TARGETS) & (index < TARGETS + call.variant.num_drafts)
        place = tl.where(is_draft, index - TARGETS, index)
    FIRST: tl.constexpr = ROWS - call.variant.num_drafts
    second = index < 0
    if call.variant.policy == "relaxed":
        second = index >= FIRST
        place = tl.where(second, index - FIRST, place)
    exists = place < num_rows - (is_draft | second).to(tl.int32)
    if call.draft.logits is not None and is_draft:
        exists = exists & (temperature_of(call, call.draft_recipe, request) != 0.0)
    base = request.to(tl.int64) * ROWS
    source = base + tl.where(second, place, index)
    mask = start * 0 - 1
    if call.masks.words is not None:
        masked = exists & (is_draft == 0)
        mask = tl.where(masked, start + place, mask)
        if call.masks.rows is not None:
            # Loaded once per program: loops would wait for it, then for the mask.
            rows = call.masks.rows + mask * call.masks.rows_step
            mask = tl.load(rows, mask=masked, other=-1).to(tl.int64)
    entry = entry_of(call, request)
    repetition = _number(call.entries.repetition, entry, 1.0)
    presence = _number(call.entries.presence, entry, 0.0)
    frequency = _number(call.entries.frequency, entry, 0.0)
    penalties = repetition, tl.div_rn(1.0, repetition), presence, frequency
    slot = base + index
    adjusts = is_draft == 0
    return Row(request, start, place, is_draft, exists, slot, source, mask, penalties, adjusts)


@triton.jit
def entry_of(call, request):
    """The index of a request's parameters."""
    entry = request
    if call.entries.numbers is not None:
        entry = tl.load(call.entries.numbers + request).to(tl.int32)
    return entry


@triton.jit
def temperature_of(call, recipe, request):
    """A request's temperature; 0 if it is greedy."""
    return tl.load(recipe.temperature + entry_of(call, request))


@triton.jit
def row_recipe(call, row):
    """A row's `Recipe`; relaxed acceptance makes that of the target's second rows."""
    temperature, min_p, top_k, top_p = _recipe(call, call.target_recipe, row.request)
    vocab_size = row.place * 0 + call.target.vocab_size
    if call.draft.logits is not None and row.is_draft:
        temperature, min_p, top_k, top_p = _recipe(call, call.draft_recipe, row.request)
        vocab_size = row.place * 0 + call.draft.vocab_size
    if call.variant.policy == "relaxed":
        second = row.slot != row.source
        min_p = tl.where(second, 0.0, min_p)
        top_k = tl.where(second, call.leniency.top_n, top_k)
        top_p = tl.where(second, 1.0, top_p)
    top_k = tl.where(top_k < vocab_size, top_k, 0)
    greedy = temperature == 0.0
    return Recipe(1.0 / tl.where(greedy, 1.0, temperature), greedy, min_p, top_k, top_p)


@triton.jit
def _recipe(call, recipe, request):
    entry = entry_of(call, request)
    min_p = _number(recipe.min_p, entry, 0.0)
    top_k = _number(recipe.top_k, entry, 0)
    top_p = _number(recipe.top_p, entry, 1.0)
    return temperature_of(call, recipe, request), min_p, top_k, top_p


@triton.jit
def _number(values, entry, neutral):
    number = entry * 0 + neutral
    if values is not None:
        number = tl.load(values + entry)
    return number
