// Logit bias, penalties and masks, applied while logits are loaded. Compiled in only if some request of
// the batch has any.
#pragma once
#include "law.cuh"

// The id of a lane's j-th logit: two runs of eight.
__device__ inline int id_of(int block, int j) {
    return block * BLOCK_SIZE + (j / 8) * (BLOCK_SIZE / 2) + lane_id() * 8 + j % 8;
}

// The changes of one row of one request. Null pointers: the batch has no such change.
struct Adjustment {
    const i64* bias_ids;
    const float* bias_values;
    int num_bias;
    const bool* prompt_mask;
    const int* output_counts;
    float repetition;
    float presence;
    float frequency;
    Integers drafts;  // of the request
    int num_before;   // drafts before the row, which count as output
    u32* marks;        // of the request, see mark_block; null: there are only few biases

    __device__ bool changes() const { return num_bias > 0 || output_counts; }
};

// Sets forbidden logits to -inf; NaN and +inf stay, so that they are found later.
__device__ inline float forbidden(float logit) { return logit < INFINITY ? -INFINITY : logit; }

// Without a branch, so that many such loads can be in flight at once.
__device__ inline i64 integer_at(const Integers& integers, i64 index) {
    const int* words = reinterpret_cast<const int*>(integers.data + index * integers.stride);
    const int low = words[0], high = words[integers.wide];
    const i64 whole = static_cast<i64>(static_cast<u64>(high) << 32 | static_cast<u32>(low));
    return integers.wide ? whole : low;
}

// One rounding per operation, never contracted, as the contract says. `count` is that of the output so far.
__device__ inline float penalised(const Adjustment& a, float logit, bool in_prompt, int count) {
    if (in_prompt || count > 0)
        logit = logit > 0.0f ? __fdiv_rn(logit, a.repetition) : __fmul_rn(logit, a.repetition);
    logit = __fsub_rn(logit, __fmul_rn(a.frequency, static_cast<float>(count)));
    return count > 0 ? __fsub_rn(logit, a.presence) : logit;
}

// The entry of a token's bias, or -1; it has one at most. Several loads are in flight at once.
__device__ inline int bias_of(const Adjustment& a, i64 id) {
    int found = -1;
#pragma unroll 8
    for (int entry = 0; entry < a.num_bias; ++entry) found = a.bias_ids[entry] == id ? entry : found;
    return found;
}

__device__ inline int drafts_equal(const Adjustment& a, i64 id) {
    int count = 0;
#pragma unroll 1
    for (int i = 0; i < a.num_before; ++i) count += integer_at(a.drafts, i) == id;
    return count;
}

__device__ inline float adjusted(const Adjustment& a, i64 id, int bias, float logit) {
    if (bias >= 0) logit = __fadd_rn(logit, a.bias_values[bias]);
    if (!a.output_counts) return logit;
    return penalised(a, logit, a.prompt_mask[id], a.output_counts[id] + drafts_equal(a, id));
}

__device__ COLD float adjust_logit(const Adjustment& a, i64 id, float logit) {
    return adjusted(a, id, bias_of(a, id), logit);
}

// A bit for each of a lane's logits that a list of ids names. By a warp.
template <typename IdAt>
__device__ inline u32 named_in(int count, int block, int num_ids, IdAt id_at) {
    u32 named = 0;
#pragma unroll 1
    for (int first = 0; first < count; first += LANES) {
        const int i = first + lane_id();
        const i64 id = i < count ? id_at(i) : -1;
        const bool is_here = id >= 0 && id < num_ids && id / BLOCK_SIZE == block;
        const int place = static_cast<int>(id % BLOCK_SIZE);
#pragma unroll 1
        for (u32 here = __ballot_sync(ALL_LANES, is_here); here; here &= here - 1) {
            const int next = __shfl_sync(ALL_LANES, place, __ffs(static_cast<int>(here)) - 1);
            if (next % (BLOCK_SIZE / 2) / 8 == lane_id())
                named |= 1u << (next / (BLOCK_SIZE / 2) * 8 + next % 8);
        }
    }
    return named;
}

// A bit for each of eight neighbouring ids that is in the prompt and, from bit 16 on, for each that is in the
// output.
__device__ inline u32 seen_among(const Adjustment& a, i64 first, int count) {
    u32 seen = 0;
#pragma unroll 1
    for (int j = 0; j < 8 && j < count; ++j)
        seen |= static_cast<u32>(a.prompt_mask[first + j]) << j |
                static_cast<u32>(a.output_counts[first + j] != 0) << (16 + j);
    return seen;
}

// The same by whole words, for `first` a multiple of 8 in rows of whole words.
__device__ inline u32 seen_among_eight(const Adjustment& a, i64 first) {
    const u64 mask = *reinterpret_cast<const u64*>(a.prompt_mask + first);
    const uint4* counts = reinterpret_cast<const uint4*>(a.output_counts + first);
    const uint4 low = counts[0], high = counts[1];
    const u32 words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    u32 seen = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j)
        seen |= ((mask >> (8 * j) & 255) != 0) << j | static_cast<u32>(words[j] != 0) << (16 + j);
    return seen;
}

__device__ inline u32 seen_from(const Adjustment& a, int first, int num_ids) {
    if (!a.output_counts || first >= num_ids) return 0;
    const u64 places = reinterpret_cast<u64>(a.prompt_mask + first) % 8 |
                       reinterpret_cast<u64>(a.output_counts + first) % 16;
    if (places == 0 && first + 8 <= num_ids) return seen_among_eight(a, first);
    return seen_among(a, first, num_ids - first);
}

// What is known beforehand of a block that bias or penalties touch in some row of the request. Each lane has a
// mark: a bit for each of its logits that is touched and, from bit 16 on, how many of the block are. Up to
// MOST_NOTED have a note each behind these.
constexpr int MOST_NOTED = 16;
constexpr int MARK_WORDS = LANES + MOST_NOTED;

enum Note : u32 {
    NAMED = 1u << 31,  // it is biased, or a draft that some rows count
    IN_PROMPT = 1u << 30,
    PLACE = 1u << 21,          // times its place in the block
    MOST_COUNTED = PLACE - 1,  // of the output so far; or 1 + the entry of its bias, 0 for none, if NAMED
};

__device__ inline u32 touched_by(u32 mark) { return mark & 0xffffu; }

__device__ inline bool is_noted(u32 mark) { return mark >> 16 <= MOST_NOTED; }

__device__ inline u32* marks_at(u32* marks, i64 block) { return marks + block * MARK_WORDS; }

// By a warp.
__device__ inline void mark_block(const Adjustment& a, int block, int num_ids, u32* to) {
    const int first = id_of(block, 0);
    const u32 seen =
        seen_from(a, first, num_ids) | seen_from(a, first + BLOCK_SIZE / 2, num_ids) << 8;
    const u32 named =
        named_in(a.num_bias, block, num_ids, [&](int i) { return a.bias_ids[i]; }) |
        named_in(a.num_before, block, num_ids, [&](int i) { return integer_at(a.drafts, i); });
    const u32 touched = touched_by(seen | seen >> 16 | named);
    const u32 up_to = static_cast<u32>(warp_sum_up_to(__popc(touched)));
    u32 number = __shfl_sync(ALL_LANES, up_to, LANES - 1);
    u32* note = to + LANES + up_to - __popc(touched);
    bool fits = number <= MOST_NOTED;
#pragma unroll 1
    for (u32 left = fits ? touched : 0; left; left &= left - 1) {
        const u32 bit = left & -left;
        const int id = id_of(block, __ffs(static_cast<int>(left)) - 1);
        u32 count = seen >> 16 & bit ? static_cast<u32>(a.output_counts[id]) : 0;
        if (named & bit) count = static_cast<u32>(1 + bias_of(a, id));
        fits = fits && count <= MOST_COUNTED;
        *note++ = (named & bit ? NAMED : 0) | (seen & bit ? IN_PROMPT : 0) | id % BLOCK_SIZE * PLACE | count;
    }
    if (__any_sync(ALL_LANES, !fits)) number = MOST_NOTED + 1;
    to[lane_id()] = touched | number << 16;
}

// The id of the lane's bias, if there are only few, or -1.
__device__ inline i64 named_of(const Adjustment& a) {
    return lane_id() < a.num_bias ? a.bias_ids[lane_id()] : -1;
}

__device__ inline int block_of(int id) { return static_cast<int>(static_cast<u32>(id) / BLOCK_SIZE); }

// The lane's mark. By a warp.
__device__ inline u32 mark_of(const Adjustment& a, int block, int num_ids) {
    if (a.marks) return marks_at(a.marks, block)[lane_id()];
    return named_in(LANES, block, num_ids, [&](int) { return named_of(a); }) | (MOST_NOTED + 1) << 16;
}

__device__ inline float adjusted_as_noted(const Adjustment& a, i64 id, u32 note, float logit) {
    const int count = static_cast<int>(note & MOST_COUNTED);
    if (note & NAMED) return adjusted(a, id, count - 1, logit);
    return penalised(a, logit, note & IN_PROMPT, count);
}

// Bias and penalties of those of a lane's logits that are marked, one in each lane at a time. By a warp.
__device__ inline void adjust_marked(
    const Adjustment& a, int block, u32 mark, float (&logits)[PER_LANE]) {
    u32 touched = touched_by(mark), notes = 0;
    int next = static_cast<int>(warp_sum_up_to(__popc(touched))) - __popc(touched);
    if (is_noted(mark) && lane_id() < MOST_NOTED) notes = marks_at(a.marks, block)[LANES + lane_id()];
#pragma unroll 1
    for (; __any_sync(ALL_LANES, touched != 0); touched &= touched - 1) {
        const u32 note = __shfl_sync(ALL_LANES, notes, next++ % LANES);
        const int j = touched ? __ffs(static_cast<int>(touched)) - 1 : PER_LANE;
        float logit = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) logit = i == j ? logits[i] : logit;
        if (touched && !is_noted(mark)) logit = adjusted(a, id_of(block, j), bias_of(a, id_of(block, j)), logit);
        else if (touched) logit = adjusted_as_noted(a, id_of(block, j), note, logit);
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) logits[i] = i == j ? logit : logits[i];
    }
}

struct Logits {
    float of[PER_LANE];
};

// The same by value, for calls: otherwise logits would live in memory.
__device__ COLD Logits adjust_marked(const Adjustment& a, int block, u32 mark, Logits logits) {
    adjust_marked(a, block, mark, logits.of);
    return logits;
}

__device__ inline void forbid(u32 allowed, float (&logits)[PER_LANE]) {
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        logits[j] = allowed >> j & 1 ? logits[j] : forbidden(logits[j]);
}

// A lane's logits of a block, of which it has the mark. By a warp.
__device__ inline void adjust_block(
    const Adjustment& a, int block, u32 mark, float (&logits)[PER_LANE]) {
    if (!__any_sync(ALL_LANES, touched_by(mark) != 0)) return;
    Logits moved;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) moved.of[j] = logits[j];
    moved = adjust_marked(a, block, mark, moved);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) logits[j] = moved.of[j];
}
