"""Rotation, the cache's write and attention of a decode step, in one kernel.

A program takes the queries of one request that share a key head, and some blocks of positions. The
last program to finish adds up the others' parts (flash decoding, arXiv 2311.01282), always in the
same order. Data that no kernel of this forward writes (the cache's earlier positions, rotations and
norms) is loaded before the previous kernel has ended.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_tokens", "least", "positions_stride"])
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
    least,
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
        qkv_stride: the distance from one token to the next.
        memory_ptr: see `KVCache.layers`.
        max_len: positions per slot.
        angles_ptr: [positions, 2, HEAD_DIM], see `Rope.table`.
        positions_ptr: [num_reqs, num_tokens] int64; each equals the one before it or is one more.
        positions_stride: the distance from one request to the next.
        slots_ptr: [num_reqs] int64.
        out_ptr: [tokens, GROUP * KEY_HEADS * HEAD_DIM].
        parts_ptr: [programs, ROWS * (HEAD_DIM + 2)] float32, scratch.
        counts_ptr: [num_reqs * KEY_HEADS] int32, zeros, and zeros again afterwards.
        query_norm_ptr, key_norm_ptr: [HEAD_DIM] each; with NORMS.
        eps: the norms' epsilon.
        scale: the factor of scores, times log2(e): exponentials are powers of two.
        num_tokens: tokens per request.
        least: blocks that a program takes before another one takes any.
        GROUP: query heads that share a key head.
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
    num_parts = tl.minimum(tl.cdiv(num_blocks, least), num_splits)
    if split >= num_parts:
        return
    STRIDE: tl.constexpr = 2 * KEY_HEADS * HEAD_DIM
    slot = tl.load(slots_ptr + request)
    slot_ptr = memory_ptr + slot * max_len * STRIDE + head * HEAD_DIM
    # Earlier steps wrote these, so no kernel of this forward needs to have ended.
    place = (begin + split) * BLOCK + tl.arange(0, BLOCK)
    low, high, values = _load_block(slot_ptr, place, first, KEY_HEADS, HEAD_DIM)
    row = tl.arange(0, ROWS)
    token, query = tl.minimum(row // GROUP, num_tokens - 1), head * GROUP + row % GROUP
    real = (row < num_tokens * GROUP)[:, None]
    position = tl.load(positions_ptr + token)
    angles = _load_angles(angles_ptr, position, HEAD_DIM)
    query_norm = _load_norm(query_norm_ptr, HEAD_DIM, NORMS)
    # The first program stores this step's tokens; of several at one position the last one stays.
    new = tl.arange(0, 16)
    fed = tl.minimum(new, num_tokens - 1)
    at = tl.load(positions_ptr + fed)
    after = tl.load(positions_ptr + tl.minimum(fed + 1, num_tokens - 1))
    kept = (new < num_tokens) & ((new == num_tokens - 1) | (at != after)) & (split == 0)
    new_angles = _load_angles(angles_ptr, at, HEAD_DIM)
    key_norm = _load_norm(key_norm_ptr, HEAD_DIM, NORMS)
    heads = (
        qkv_ptr + (request * num_tokens + token)[:, None] * qkv_stride + query[:, None] * HEAD_DIM
    )
    tokens = qkv_ptr + (request * num_tokens + fed)[:, None] * qkv_stride
    tokens += (GROUP * KEY_HEADS + head) * HEAD_DIM
    whole = tl.arange(0, HEAD_DIM)[None, :]
    half = tl.arange(0, HEAD_DIM // 2)[None, :]
    if OVERLAPS:
        low, high, values = _arrived(low), _arrived(high), _arrived(values)
        angles = _arrived(angles[0]), _arrived(angles[1])
        new_angles = _arrived(new_angles[0]), _arrived(new_angles[1])
        tl.extra.cuda.gdc_wait()
    query_low, query_high = _load_halves(heads, real, HEAD_DIM)
    new_low, new_high = _load_halves(tokens, kept[:, None], HEAD_DIM)
    new_values = tl.load(tokens + KEY_HEADS * HEAD_DIM + whole, mask=kept[:, None], other=0.0)
    if OVERLAPS:
        query_low, query_high = _arrived(query_low), _arrived(query_high)
        new_low, new_high, new_values = _arrived(new_low), _arrived(new_high), _arrived(new_values)
    query_low, query_high = _turned(query_low, query_high, angles, query_norm, eps, HEAD_DIM, NORMS)
    dtype = qkv_ptr.dtype.element_ty
    query_low, query_high = (query_low * scale).to(dtype), (query_high * scale).to(dtype)
    new_low, new_high = _turned(new_low, new_high, new_angles, key_norm, eps, HEAD_DIM, NORMS)
    new_low, new_high = new_low.to(dtype), new_high.to(dtype)
    new_scores = _scores(query_low, query_high, position, new_low, new_high, at, kept, WINDOW)
    scores = _scores(query_low, query_high, position, low, high, place, place < first, WINDOW)
    # A finite lower bound, for queries that see nothing.
    best = tl.maximum(tl.maximum(tl.max(scores, 1), tl.max(new_scores, 1)), -1e30)
    new_weights, weights = tl.exp2(new_scores - best[:, None]), tl.exp2(scores - best[:, None])
    total = tl.sum(weights, 1) + tl.sum(new_weights, 1)
    acc = tl.dot(new_weights.to(dtype), new_values)
    acc = tl.dot(weights.to(dtype), values, acc)
    for block in tl.range(split + num_parts, num_blocks, num_parts):
        there = (begin + block) * BLOCK + tl.arange(0, BLOCK)
        next_low, next_high, next_values = _load_block(slot_ptr, there, first, KEY_HEADS, HEAD_DIM)
        scores = _scores(
            query_low, query_high, position, next_low, next_high, there, there < first, WINDOW
        )
        higher = tl.maximum(best, tl.max(scores, 1))
        weights, shrunk = tl.exp2(scores - higher[:, None]), tl.exp2(best - higher)
        best, total = higher, total * shrunk + tl.sum(weights, 1)
        acc = acc * shrunk[:, None] + tl.dot(weights.to(dtype), next_values)
    goal = ((request * num_tokens + token) * (GROUP * KEY_HEADS) + query) * HEAD_DIM
    goal = out_ptr + goal[:, None] + whole
    if num_parts == 1:
        tl.store(goal, (acc / total[:, None]).to(dtype), mask=real)
    else:
        PART: tl.constexpr = ROWS * (HEAD_DIM + 2)
        parts_ptr += tl.program_id(0) * num_splits * PART
        _store_part(parts_ptr + split * PART, best, total, acc, real, ROWS, HEAD_DIM)
        tl.debug_barrier()
        before = tl.atomic_add(counts_ptr + tl.program_id(0), 1, sem="acq_rel")
        if before == num_parts - 1:
            total, acc = _sum_of_parts(parts_ptr, num_parts, real, ROWS, HEAD_DIM)
            tl.store(goal, (acc / total[:, None]).to(dtype), mask=real)
            tl.store(counts_ptr + tl.program_id(0), 0)
    # Nothing reads these before the next forward.
    goals = slot_ptr + at[:, None] * STRIDE
    tl.store(goals + half, new_low, mask=kept[:, None])
    tl.store(goals + half + HEAD_DIM // 2, new_high, mask=kept[:, None])
    tl.store(goals + KEY_HEADS * HEAD_DIM + whole, new_values, mask=kept[:, None])


@triton.jit
def _load_block(slot_ptr, place, first, KEY_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Load both halves of keys, and values, at positions before this step's first."""
    rows = slot_ptr + place[:, None] * (2 * KEY_HEADS * HEAD_DIM)
    mask = (place < first)[:, None]
    low, high = _load_halves(rows, mask, HEAD_DIM)
    whole = tl.arange(0, HEAD_DIM)[None, :]
    return low, high, tl.load(rows + KEY_HEADS * HEAD_DIM + whole, mask=mask, other=0.0)


@triton.jit
def _load_halves(rows, mask, HEAD_DIM: tl.constexpr):
    half = tl.arange(0, HEAD_DIM // 2)[None, :]
    low = tl.load(rows + half, mask=mask, other=0.0)
    return low, tl.load(rows + half + HEAD_DIM // 2, mask=mask, other=0.0)


@triton.jit
def _arrived(tile):
    """Return the tiles unchanged, but make the compiler issue all their loads before using any.

    Otherwise it rearranges a tile at once, and issues the next load after that.
    """
    PACK: tl.constexpr = 32 // tile.dtype.primitive_bitwidth
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [tile], dtype=tile.dtype, is_pure=False, pack=PACK
    )


@triton.jit
def _load_angles(angles_ptr, position, HEAD_DIM: tl.constexpr):
    """Load cosines and the second half's sines; the first half's are the same but for the sign."""
    rows = angles_ptr + position[:, None] * (2 * HEAD_DIM)
    half = tl.arange(0, HEAD_DIM // 2)[None, :]
    return tl.load(rows + half), tl.load(rows + half + HEAD_DIM + HEAD_DIM // 2)


@triton.jit
def _load_norm(norm_ptr, HEAD_DIM: tl.constexpr, NORMS: tl.constexpr):
    """Load both halves of a norm's weights."""
    low, high = 1.0, 1.0
    if NORMS:
        half = tl.arange(0, HEAD_DIM // 2)[None, :]
        low = tl.load(norm_ptr + half)
        high = tl.load(norm_ptr + half + HEAD_DIM // 2)
    return low, high


@triton.jit
def _turned(low, high, angles, norm, eps, HEAD_DIM: tl.constexpr, NORMS: tl.constexpr):
    """Both halves of heads, normalised and rotated, float32."""
    low, high = low.to(tl.float32), high.to(tl.float32)
    if NORMS:
        squares = (tl.sum(low * low, 1) + tl.sum(high * high, 1))[:, None]
        factor = tl.rsqrt(squares / HEAD_DIM + eps)
        low *= factor * norm[0].to(tl.float32)
        high *= factor * norm[1].to(tl.float32)
    cos, sin = angles[0].to(tl.float32), angles[1].to(tl.float32)
    return low * cos - high * sin, high * cos + low * sin


@triton.jit
def _scores(query_low, query_high, position, low, high, place, there, WINDOW: tl.constexpr):
    """The scores of keys at places; minus infinity where a query does not see them."""
    scores = tl.dot(query_low, tl.trans(low)) + tl.dot(query_high, tl.trans(high))
    seen = there[None, :] & (place[None, :] <= position[:, None])
    if WINDOW > 0:
        seen &= place[None, :] > position[:, None] - WINDOW
    return tl.where(seen, scores, -float("inf"))


@triton.jit
def _store_part(part_ptr, best, total, acc, real, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    row = tl.arange(0, ROWS)
    goal = part_ptr + row[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    tl.store(goal, acc, mask=real)
    tl.store(part_ptr + ROWS * HEAD_DIM + row, best)
    tl.store(part_ptr + ROWS * (HEAD_DIM + 1) + row, total)


@triton.jit
def _sum_of_parts(parts_ptr, num_parts, real, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Add up the parts of all programs of a head, read past this processor's own cache."""
    row = tl.arange(0, ROWS)
    place = row[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    best = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, HEAD_DIM), tl.float32)
    for some in tl.range(0, num_parts, 4):
        # Several loads are in flight at once.
        for ahead in tl.static_range(4):
            part = some + ahead
            is_one = part < num_parts
            part_ptr = parts_ptr + part * (ROWS * (HEAD_DIM + 2))
            its_best = tl.load(
                part_ptr + ROWS * HEAD_DIM + row, mask=is_one, other=-1e30, cache_modifier=".cg"
            )
            its_total = tl.load(
                part_ptr + ROWS * (HEAD_DIM + 1) + row, mask=is_one, other=0.0, cache_modifier=".cg"
            )
            its_acc = tl.load(part_ptr + place, mask=real & is_one, other=0.0, cache_modifier=".cg")
            higher = tl.maximum(best, its_best)
            shrunk, its_shrunk = tl.exp2(best - higher), tl.exp2(its_best - higher)
            total = total * shrunk + its_total * its_shrunk
            acc = acc * shrunk[:, None] + its_acc * its_shrunk[:, None]
            best = higher
    return total, acc
