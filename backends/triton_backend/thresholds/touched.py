"""Logits of a row that bias or penalties may change, by a list of their tokens.

Where the list holds all, a program counts raw logits, as in rows without penalties; then a few
counts are moved. In bfloat16 only logits of this list can be odd: have a lower half.
"""

import triton
import triton.language as tl

from ..adjust import extra_tokens, value_at
from ..assembly import store_here
from ..logits import BLOCK, NEVER, is_allowed, masked, raw_logits, seen_bytes_of, target_logits
from ..rows import open_row
from ..units import as_key, highest_reaching, mass_of
from .bins import BINS, half_bins, numbers_of

MOST_TOUCHED = tl.constexpr(8192)
"""The length of a request's list."""

MOST_NEAR = tl.constexpr(1024)
"""The most listed logits that a program looks at together: its threads have few registers."""

WORDS = tl.constexpr(1024)
"""How many words of bits are searched at once for touched tokens."""

EACH = tl.constexpr(128)
"""How many touched tokens are looked up at once."""

ODD_WORDS = tl.constexpr((BINS.value * 3 + MOST_TOUCHED.value + MOST_NEAR.value) // 2)
"""The 8-byte words about a row's odd logits: their additional masses, their numbers, all listed
logits, and those of one bin."""


@triton.jit
def odd_masses_of(call, row):
    """The address of the mass that odd logits of each half have beyond that of the half alone."""
    return call.scratch.odd + row.slot * ODD_WORDS


@triton.jit
def odd_numbers_of(call, row):
    """The address of the numbers of a row's odd logits, by halves: int32."""
    return (odd_masses_of(call, row) + BINS).to(tl.pointer_type(tl.int32), bitcast=True)


@triton.jit
def _values_of(call, row):
    return (odd_numbers_of(call, row) + BINS).to(tl.pointer_type(tl.float32), bitcast=True)


@triton.jit
def num_touched(call, row):
    """How many tokens of a row are touched; the list may hold fewer."""
    return tl.load(call.scratch.num_touched + row.request, cache_modifier=".cg")


@triton.jit
def list_touched(call, row):
    """List the tokens that a request's bias and penalties touch; each of its rows lists a share."""
    ROWS: tl.constexpr = call.variant.num_rows
    part = (row.slot % ROWS).to(tl.int32)
    if part == 0:
        # All drafts are before its last row.
        _list_extra(call, open_row(call, row.slot.to(tl.int32) + call.variant.num_drafts))
    if call.scratch.seen is not None:
        seen = seen_bytes_of(call, row.request).to(tl.pointer_type(tl.int32), bitcast=True)
        for first in range(part * WORDS, tl.cdiv(call.target.vocab_size, 32), ROWS * WORDS):
            word = first + tl.arange(0, WORDS)
            inside = word < call.scratch.num_blocks * (BLOCK // 32)
            bits = tl.load(seen + word, mask=inside, other=0)
            numbers = _num_bits(bits)
            out, left = _list_more(call, row, numbers)
            while left > 0:
                lowest = bits & -bits
                token = word * 32 + _num_bits(lowest - 1)
                store_here(out, token.to(tl.float32, bitcast=True), bits != 0)
                bits ^= lowest
                out += 1
                left -= 1


@triton.jit
def _list_extra(call, row):
    """List what has a bias or is a draft, and was not seen."""
    place = tl.arange(0, call.variant.extra_width)
    tokens, _biases = extra_tokens(call, row, place)
    wanted = tokens >= 0
    if call.scratch.seen is not None:
        token = tl.where(wanted, tokens, 0)
        byte = tl.load(seen_bytes_of(call, row.request) + token // 8).to(tl.int32)
        wanted = wanted & ((byte >> token % 8) & 1 == 0)
        for draft in range(call.variant.num_drafts):
            wanted = wanted & ((tokens != value_at(tokens, place, draft)) | (place <= draft))
    out, left = _list_more(call, row, wanted.to(tl.int32))
    if left > 0:
        store_here(out, tokens.to(tl.float32, bitcast=True), wanted)


@triton.jit
def _list_more(call, row, numbers):
    """Where to list so many more tokens, [N], and the most of these; 0 if all are too many."""
    number = tl.sum(numbers, 0)
    before = tl.atomic_add(call.scratch.num_touched + row.request, number, sem="relaxed")
    out = call.scratch.touched + row.request.to(tl.int64) * MOST_TOUCHED
    out = out.to(tl.pointer_type(tl.float32), bitcast=True)
    most = tl.where(before + number <= MOST_TOUCHED, tl.max(numbers, 0), 0)
    return out + before + tl.cumsum(numbers, 0) - numbers, most


@triton.jit
def _num_bits(bits):
    """How many bits are set, elementwise."""
    bits -= (bits >> 1) & 0x55555555
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return ((bits * 0x01010101) >> 24) & 0xFF


@triton.jit
def count_touched(call, row, low, moves, row_max, inverse, part, num_parts):
    """Weigh a part of the listed logits where they are odd; move their counts if raw ones count.

    Nothing counts below `low`; `moves` says whether raw logits were counted.
    """
    number = num_touched(call, row)
    listed = call.scratch.touched + row.request.to(tl.int64) * MOST_TOUCHED
    for first in range(part * EACH, number, num_parts * EACH):
        place = first + tl.arange(0, EACH)
        inside = place < number
        ids = tl.load(listed + place, mask=inside, other=call.target.vocab_size)
        logits = target_logits(call, row, ids)
        bins = half_bins(logits)
        counts = logits >= low
        if moves:
            raw = raw_logits(call, row, ids)
            if call.masks.words is not None:
                raw = masked(raw, is_allowed(call, row, ids))
            numbers = numbers_of(call, row)
            tl.atomic_add(numbers + half_bins(raw), place * 0 - 1, mask=raw >= low, sem="relaxed")
            tl.atomic_add(numbers + bins, place * 0 + 1, mask=counts, sem="relaxed")
        even = (logits.to(tl.int32, bitcast=True) & -0x10000).to(tl.float32, bitcast=True)
        odd = counts & (logits != even)
        more = mass_of(logits, row_max, inverse) - mass_of(even, row_max, inverse)
        tl.atomic_add(odd_masses_of(call, row) + bins, more, mask=odd, sem="relaxed")
        tl.atomic_add(odd_numbers_of(call, row) + bins, place * 0 + 1, mask=odd, sem="relaxed")
        tl.store(_values_of(call, row) + place, tl.where(odd, logits, NEVER), mask=inside)


@triton.jit
def odd_reaching(call, row, span, first, last, needed, BY_NUMBER: tl.constexpr):
    """The largest key of an odd logit from which on those up to another key are enough.

    Also the mass of the odd logits below it, from the first key on. They are at most MOST_NEAR.
    """
    number = num_touched(call, row)
    listed = _values_of(call, row)
    if number > MOST_NEAR:
        near = listed + MOST_TOUCHED
        found = number * 0
        for begin in range(0, number, MOST_NEAR):
            values, _keys, inside = _values_between(listed + begin, number - begin, first, last)
            rank = found + tl.cumsum(inside.to(tl.int32), 0)
            store_here(near + rank - 1, values, inside)
            found = tl.max(rank, 0)
        tl.debug_barrier()
        listed = near
        number = found
    values, keys, inside = _values_between(listed, number, first, last)
    masses = tl.where(inside, mass_of(values, span.row_max, span.inverse), 0)
    weights = inside.to(tl.int64) if BY_NUMBER else masses
    key = highest_reaching(keys, weights, needed.to(tl.float64))
    return key, tl.sum(tl.where(keys < key, masses, 0), 0)


@triton.jit
def _values_between(listed, number, first, last):
    """The first values of a list, their keys, and which are between two keys: [MOST_NEAR]."""
    place = tl.arange(0, MOST_NEAR)
    values = tl.load(listed + place, mask=place < number, other=NEVER, cache_modifier=".cg")
    keys = as_key(values, 0)
    return values, keys, (keys >= first) & (keys <= last)
