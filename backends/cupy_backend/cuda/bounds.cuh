// Bounds that a row's threshold cannot be below, from its blocks' statistics alone: only blocks that
// reach one are read again. By a warp.
#pragma once
#include "filters.cuh"

// A logit that top-p's threshold is not below: all logits that weigh less than it does have less than
// 1 - top_p of the mass together. A little lower, for rounding.
__device__ inline float bound_of_top_p(
    const Known& known, float sum, float log2_vocab_size) {
    const float rest = 1.0f - known.filters.top_p - MASS_SLACK;
    if (!(rest > 0.0f)) return LEAST_LOGIT;
    const float log2_share = fminf(log2_fast(rest * sum) - log2_vocab_size, 0.0f) - 2e-3f;
    const float distance = log2_share * 1.00001f * LN_2 * fmaxf(known.filters.temperature, 1e-37f);
    return __fadd_rd(known.law.max, distance);
}

// A logit that k blocks reach, so that the k-th largest logit is not below it: one that two blocks of each
// lane do.
__device__ inline float bound_of_few(const Mass* stats, int num_blocks) {
    float first = -INFINITY, second = -INFINITY;
#pragma unroll 4
    for (int block = lane_id(); block < num_blocks; block += LANES) {
        const float max = stats[block].max;
        second = fmaxf(second, fminf(first, max));
        first = fmaxf(first, max);
    }
    return fmaxf(-warp_max(-second), LEAST_LOGIT);
}

// The same for any k: the k-th of the blocks' largest, with the lower half of its bits cut off.
__device__ COLD float bound_of_many(const Mass* stats, int num_blocks, float max, int top_k) {
    if (top_k > num_blocks || num_blocks > MAX_BLOCKS) return LEAST_LOGIT;
    constexpr int cut = 16, per_lane = MAX_BLOCKS / LANES;
    u32 keys[per_lane];
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
        const int block = lane_id() + i * LANES;
        keys[i] = block < num_blocks ? float_key(stats[block].max) >> cut : 0;
    }
    u32 low = 0, high = float_key(max) >> cut;  // as many reach the lower one
#pragma unroll 1
    while (low < high) {
        const u32 middle = (low + high + 1) / 2;
        u32 reach = 0;
#pragma unroll
        for (int i = 0; i < per_lane; ++i) reach += keys[i] >= middle;
        const bool enough = __reduce_add_sync(ALL_LANES, reach) >= static_cast<u32>(top_k);
        if (enough) low = middle;
        if (!enough) high = middle - 1;
    }
    return fmaxf(key_float(low << cut), LEAST_LOGIT);
}

// Completes what is known of a row: a bound from which on there is all that top-k and
// min-p leave, or all that top-p keeps if it is alone.
template <typename T>
__device__ COLD void bound_row(OpenRow& open) {
    const Law law = open.known.law;
    const Filters filters = open.known.filters;
    const int num_blocks = row_of<T>(open).num_blocks();
    float bound = floor_of_min_p(reach_of_min_p(filters), law.max);
    if (filters.top_k > 0)
        bound = fmaxf(bound, filters.top_k <= 2 * LANES
                                 ? bound_of_few(open.stats, num_blocks)
                                 : bound_of_many(open.stats, num_blocks, law.max, filters.top_k));
    if (!cuts_before_top_p(filters))
        bound = bound_of_top_p(open.known, from_fixed(open.known.sum),
                               log2_fast(static_cast<float>(row_of<T>(open).vocab_size)));
    if (lane_id() == 0) {
        open.known.bound = bound;
        open.counted = is_countable<T>(open.known);
    }
    __syncwarp();
}
