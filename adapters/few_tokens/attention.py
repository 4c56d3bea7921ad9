"""Rotation, the cache's write and attention of a decode step, in one kernel.

A program takes the queries of one request that share a key head, and some blocks of positions; the
last one to finish adds the others' parts up (flash decoding, arXiv 2311.01282), always in the same
order. This module refuses to know how many programs there are.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_tokens", "positions_stride"])
def attention_kernel(
    qkv_ptr,
    qkv_stride,
    memory_ptr,
    max_len,
    angles_ptr,
    positions_ptr,
    positions_stride,
    slots_ptr,
    out_ptr,
    parts_ptr,
    counts_ptr,
    query_norm_ptr,
    key_norm_ptr,
    eps,
    scale,
    num_tokens,
    GROUP: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WINDOW: tl.constexpr,
    NORMS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Attend to the cache and to this step's own keys and values, and store those.

    Args:
        qkv_ptr: [tokens, (GROUP + 2) * KEY_HEADS * HEAD_DIM]: queries, keys and values.
        qkv_stride: from one token to the next.
        memory_ptr: see `LayerCache.memory`.
        max_len: positions per slot.
        angles_ptr: [positions, 2, HEAD_DIM], see `Rope.table`.
        positions_ptr: [num_reqs, num_tokens] int64; each is the one before or follows it.
        positions_stride: from one request to the next.
        slots_ptr: [num_reqs] int64.
        out_ptr: [tokens, GROUP * KEY_HEADS * HEAD_DIM].
        parts_ptr: [programs, ROWS * (HEAD_DIM + 2)] float32, scratch.
        counts_ptr: [num_reqs * KEY_HEADS] int32, zeros, and zeros again afterwards.
        query_norm_ptr, key_norm_ptr: [HEAD_DIM] each; with NORMS.
        eps: of the norms.
        scale: of scores, in powers of two.
        num_tokens: of each request.
        GROUP: heads of queries that share a head of keys.
        ROWS: num_tokens * GROUP or more, a power of two, 16 at least.
        BLOCK: positions at a time.
        WINDOW: how many positions a query sees; 0 for all.
        OVERLAPS: whether this kernel starts before the one that writes qkv has ended.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    request, head = tl.program_id(0) // KEY_HEADS, tl.program_id(0) % KEY_HEADS
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    positions_ptr += request * positions_stride
    first = tl.load(positions_ptr)
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(first - WINDOW + 1, 0) // BLOCK
    num_blocks = tl.maximum(tl.cdiv(first, BLOCK) - begin, 1)
    num_parts = tl.minimum(num_blocks, num_splits)
    if split >= num_parts:
        return
    STRIDE: tl.constexpr = 2 * KEY_HEADS * HEAD_DIM
    slot = tl.load(slots_ptr + request)
    slot_ptr = memory_ptr + slot * max_len * STRIDE + head * HEAD_DIM
    # Earlier steps wrote these, so that no kernel of this forward must have ended.
    place = (begin + split) * BLOCK + tl.arange(0, BLOCK)
    low, high, values = _load_block(slot_ptr, place, first, KEY_HEADS, HEAD_DIM)
    row = tl.arange(0, ROWS)
    token, query = tl.minimum(row // GROUP, num_tokens - 1), head * GROUP + row % GROUP
    real = (row < num_tokens * GROUP)[:, None]
    position = tl.load(positions_ptr + token)
    angles = angles_ptr + position[:, None] * (2 * HEAD_DIM)
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    heads = (
        qkv_ptr + (request * num_tokens + token)[:, None] * qkv_stride + query[:, None] * HEAD_DIM
    )
    query_low, query_high = _turned(heads, angles, real, query_norm_ptr, eps, HEAD_DIM, NORMS)
    dtype = qkv_ptr.dtype.element_ty
    query_low, query_high = (query_low * scale).to(dtype), (query_high * scale).to(dtype)
    best = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, HEAD_DIM), tl.float32)
    if split == 0:
        new = tl.arange(0, 16)
        fed = tl.minimum(new, num_tokens - 1)
        at = tl.load(positions_ptr + fed)
        after = tl.load(positions_ptr + tl.minimum(fed + 1, num_tokens - 1))
        # Of tokens at one position the last one stays.
        kept = (new < num_tokens) & ((new == num_tokens - 1) | (at != after))
        tokens = qkv_ptr + (request * num_tokens + fed)[:, None] * qkv_stride
        tokens += (GROUP * KEY_HEADS + head) * HEAD_DIM
        new_angles = angles_ptr + at[:, None] * (2 * HEAD_DIM)
        new_low, new_high = _turned(
            tokens, new_angles, kept[:, None], key_norm_ptr, eps, HEAD_DIM, NORMS
        )
        new_low, new_high = new_low.to(dtype), new_high.to(dtype)
        whole = tl.arange(0, HEAD_DIM)[None, :]
        half = tl.arange(0, HEAD_DIM // 2)[None, :]
        new_values = tl.load(tokens + KEY_HEADS * HEAD_DIM + whole, mask=kept[:, None], other=0.0)
        goals = slot_ptr + at[:, None] * STRIDE
        tl.store(goals + half, new_low, mask=kept[:, None])
        tl.store(goals + half + HEAD_DIM // 2, new_high, mask=kept[:, None])
        tl.store(goals + KEY_HEADS * HEAD_DIM + whole, new_values, mask=kept[:, None])
        best, total, acc = _attended(
            query_low, query_high, position, new_low, new_high, new_values, at, kept,
            best, total, acc, WINDOW,
        )  # fmt: skip
    best, total, acc = _attended(
        query_low, query_high, position, low, high, values, place, place < first,
        best, total, acc, WINDOW,
    )  # fmt: skip
    for block in tl.range(split + num_splits, num_blocks, num_splits):
        there = (begin + block) * BLOCK + tl.arange(0, BLOCK)
        next_low, next_high, next_values = _load_block(slot_ptr, there, first, KEY_HEADS, HEAD_DIM)
        best, total, acc = _attended(
            query_low, query_high, position, next_low, next_high, next_values, there, there < first,
            best, total, acc, WINDOW,
        )  # fmt: skip
    goal = ((request * num_tokens + token) * (GROUP * KEY_HEADS) + query) * HEAD_DIM
    goal = out_ptr + goal[:, None] + tl.arange(0, HEAD_DIM)[None, :]
    if num_parts == 1:
        tl.store(goal, (acc / total[:, None]).to(dtype), mask=real)
        return
    PART: tl.constexpr = ROWS * (HEAD_DIM + 2)
    parts_ptr += tl.program_id(0) * num_splits * PART
    _store_part(parts_ptr + split * PART, best, total, acc, ROWS, HEAD_DIM)
    tl.debug_barrier()
    before = tl.atomic_add(counts_ptr + tl.program_id(0), 1, sem="acq_rel")
    if before == num_parts - 1:
        total, acc = _sum_of_parts(parts_ptr, num_parts, ROWS, HEAD_DIM)
        tl.store(goal, (acc / total[:, None]).to(dtype), mask=real)
        tl.store(counts_ptr + tl.program_id(0), 0)


@triton.jit
def _load_block(slot_ptr, place, first, KEY_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Both halves of keys, and values, of positions before the first of this step."""
    rows = slot_ptr + place[:, None] * (2 * KEY_HEADS * HEAD_DIM)
    mask = (place < first)[:, None]
    half = tl.arange(0, HEAD_DIM // 2)[None, :]
    low = tl.load(rows + half, mask=mask, other=0.0)
    high = tl.load(rows + half + HEAD_DIM // 2, mask=mask, other=0.0)
    whole = tl.arange(0, HEAD_DIM)[None, :]
    return low, high, tl.load(rows + KEY_HEADS * HEAD_DIM + whole, mask=mask, other=0.0)


@triton.jit
def _turned(heads, angles, mask, norm_ptr, eps, HEAD_DIM: tl.constexpr, NORMS: tl.constexpr):
    """Both halves of heads, normalised and rotated, float32."""
    half = tl.arange(0, HEAD_DIM // 2)[None, :]
    low = tl.load(heads + half, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(heads + half + HEAD_DIM // 2, mask=mask, other=0.0).to(tl.float32)
    if NORMS:
        squares = (tl.sum(low * low, 1) + tl.sum(high * high, 1))[:, None]
        factor = tl.rsqrt(squares / HEAD_DIM + eps)
        low *= factor * tl.load(norm_ptr + half).to(tl.float32)
        high *= factor * tl.load(norm_ptr + half + HEAD_DIM // 2).to(tl.float32)
    low_cos = tl.load(angles + half).to(tl.float32)
    high_cos = tl.load(angles + half + HEAD_DIM // 2).to(tl.float32)
    low_sin = tl.load(angles + half + HEAD_DIM).to(tl.float32)
    high_sin = tl.load(angles + half + HEAD_DIM + HEAD_DIM // 2).to(tl.float32)
    return low * low_cos + high * low_sin, high * high_cos + low * high_sin


@triton.jit
def _attended(
    query_low,
    query_high,
    position,
    low,
    high,
    values,
    place,
    there,
    best,
    total,
    acc,
    WINDOW: tl.constexpr,
):
    """One more block of keys in a running softmax."""
    scores = tl.dot(query_low, tl.trans(low)) + tl.dot(query_high, tl.trans(high))
    seen = there[None, :] & (place[None, :] <= position[:, None])
    if WINDOW > 0:
        seen &= place[None, :] > position[:, None] - WINDOW
    scores = tl.where(seen, scores, -float("inf"))
    higher = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrunk = tl.exp2(best - higher)
    total = total * shrunk + tl.sum(weights, 1)
    acc = acc * shrunk[:, None] + tl.dot(weights.to(values.dtype), values)
    return higher, total, acc


@triton.jit
def _store_part(part_ptr, best, total, acc, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    row = tl.arange(0, ROWS)
    tl.store(part_ptr + row[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :], acc)
    tl.store(part_ptr + ROWS * HEAD_DIM + row, best)
    tl.store(part_ptr + ROWS * (HEAD_DIM + 1) + row, total)


@triton.jit
def _sum_of_parts(parts_ptr, num_parts, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """What all programs of a head found, read from where other processors' stores have arrived."""
    row = tl.arange(0, ROWS)
    best = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, HEAD_DIM), tl.float32)
    for part in tl.range(0, num_parts):
        part_ptr = parts_ptr + part * (ROWS * (HEAD_DIM + 2))
        its_best = tl.load(part_ptr + ROWS * HEAD_DIM + row, cache_modifier=".cg")
        its_total = tl.load(part_ptr + ROWS * (HEAD_DIM + 1) + row, cache_modifier=".cg")
        its_acc = tl.load(
            part_ptr + row[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :],
            cache_modifier=".cg",
        )
        higher = tl.maximum(best, its_best)
        shrunk, its_shrunk = tl.exp2(best - higher), tl.exp2(its_best - higher)
        total = total * shrunk + its_total * its_shrunk
        acc = acc * shrunk[:, None] + its_acc * its_shrunk[:, None]
        best = higher
    return total, acc
