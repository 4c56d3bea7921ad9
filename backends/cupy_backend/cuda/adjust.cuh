// Logit bias and penalties, applied to logits as they are loaded. Compiled in only when some
// request of the batch has any.
#pragma once
#include "law.cuh"

// Of one row of one request. Null pointers: the batch has no such thing.
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
};

// Without a branch, so that many such loads can be on their way at once.
__device__ inline i64 integer_at(const Integers& integers, i64 index) {
    const int* words = reinterpret_cast<const int*>(integers.data + index * integers.stride);
    const int low = words[0], high = words[integers.wide];
    const i64 whole = static_cast<i64>(static_cast<u64>(high) << 32 | static_cast<u32>(low));
    return integers.wide ? whole : low;
}

// One rounding an operation, never contracted, as the contract says. `count` is of the output so far.
__device__ inline float penalised(const Adjustment& a, float logit, bool in_prompt, int count) {
    if (in_prompt || count > 0)
        logit = logit > 0.0f ? __fdiv_rn(logit, a.repetition) : __fmul_rn(logit, a.repetition);
    logit = __fsub_rn(logit, __fmul_rn(a.frequency, static_cast<float>(count)));
    return count > 0 ? __fsub_rn(logit, a.presence) : logit;
}

__device__ inline float with_bias(const Adjustment& a, i64 id, float logit) {
    for (int entry = 0; entry < a.num_bias; ++entry)
        if (a.bias_ids[entry] == id) logit = __fadd_rn(logit, a.bias_values[entry]);
    return logit;
}

__device__ inline int drafts_equal(const Adjustment& a, i64 id) {
    int count = 0;
    for (int i = 0; i < a.num_before; ++i) count += integer_at(a.drafts, i) == id;
    return count;
}

__device__ COLD float adjust_logit(const Adjustment& a, i64 id, float logit) {
    logit = with_bias(a, id, logit);
    if (!a.output_counts) return logit;
    return penalised(a, logit, a.prompt_mask[id], a.output_counts[id] + drafts_equal(a, id));
}

// Whether a list of ids has one in the block. By a warp.
template <typename IdAt>
__device__ inline bool any_in_block(int count, int block, IdAt id_at) {
    bool here = false;
    for (int i = lane_id(); i < count; i += LANES) {
        const i64 id = id_at(i);
        here |= id >= 0 && id / BLOCK_SIZE == block;
    }
    return __any_sync(ALL_LANES, here);
}

// Which of eight neighbouring ids are in the prompt or the output, a bit each.
__device__ inline u32 seen_among(const Adjustment& a, i64 first, int count) {
    u32 seen = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j)
        if (j < count && (a.prompt_mask[first + j] || a.output_counts[first + j] != 0))
            seen |= 1u << j;
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
    for (int j = 0; j < 8; ++j) seen |= (words[j] != 0 || (mask >> (8 * j) & 255)) << j;
    return seen;
}

// A lane's eight logits from id `first` on, of which `count` are in the vocabulary. `all` of them are
// looked at one by one, else those that were seen.
__device__ inline void adjust_eight(
    const Adjustment& a, i64 first, int count, bool all, float* logits) {
    u32 touched = all ? 255u : 0u;
    if (!all && a.output_counts && count > 0) {
        const u64 places = reinterpret_cast<u64>(a.prompt_mask + first) % 8 |
                           reinterpret_cast<u64>(a.output_counts + first) % 16;
        touched = places == 0 && count == 8 ? seen_among_eight(a, first)
                                            : seen_among(a, first, count);
    }
    if (touched == 0) return;
#pragma unroll
    for (int j = 0; j < 8; ++j)
        if (j < count && touched >> j & 1) logits[j] = adjust_logit(a, first + j, logits[j]);
}

__device__ inline void adjust_block(
    const Adjustment& a, int block, int num_ids, float (&logits)[PER_LANE]) {
    const bool all =
        any_in_block(a.num_bias, block, [&](int i) { return a.bias_ids[i]; }) ||
        any_in_block(a.num_before, block, [&](int i) { return integer_at(a.drafts, i); });
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int first = block * BLOCK_SIZE + half * (BLOCK_SIZE / 2) + lane_id() * 8;
        const int rest = num_ids - first;
        adjust_eight(a, first, rest < 8 ? rest : 8, all, logits + half * 8);
    }
}
