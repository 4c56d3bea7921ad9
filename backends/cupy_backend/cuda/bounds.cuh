// Bounds that a row's threshold cannot be below, from its blocks' statistics alone: only blocks that
// reach one are read again. By a warp.
#pragma once
#include "survey.cuh"

// A logit that top-p's threshold is not below: all logits that weigh less than it does have less than
// 1 - top_p of the mass together. A little lower, for rounding.
__device__ inline float bound_of_top_p(
    const Filters& filters, float max, float sum, int num_blocks) {
    const float rest = 1.0f - filters.top_p - MASS_SLACK;
    if (!(rest > 0.0f)) return LEAST_LOGIT;
    const float log2_size = log2_fast(static_cast<float>(num_blocks) * BLOCK_SIZE);
    const float log2_share = fminf(log2_fast(rest * sum) - log2_size, 0.0f) - 2e-3f;
    const float distance = log2_share * 1.00001f * LN_2 * fmaxf(filters.temperature, 1e-37f);
    return __fadd_rd(max, distance);
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

// A logit that k blocks reach, and the mass of those that do: the k largest logits weigh no more.
struct Reach {
    float level;
    float mass;
};

__device__ inline float mass_from(const Mass* stats, int num_blocks, const Law& law, float level) {
    float sum = 0.0f;
#pragma unroll 2
    for (int block = lane_id(); block < num_blocks; block += LANES) {
        const Mass mass = stats[block];
        const float weight = exp2_fast(log2_weight(mass.max, law.max, law.scale));
        if (mass.max >= level) sum = __fmaf_rn(mass.sum, weight, sum);
    }
    return warp_reduce(sum, Add{});
}

// The level is looked for above what all blocks reach, but for those behind the last round of lanes: first among
// what one block of each lane reaches, or of each two lanes, four and so on, which brackets it closely; then by
// halves. -inf where k are not as many as these.
__device__ COLD Reach reach_of_blocks(
    const Mass* stats, int num_blocks, const Law& law, int top_k) {
    const Maxima maxima(stats, num_blocks);
    const int rounds = num_blocks / LANES;
    float low = top_k > rounds * LANES ? -INFINITY : maxima.least_of(rounds);
    float high = law.max, group = maxima.largest_of_lane(), middle = -warp_max(-group);
    int lanes = 1;  // of a group
#pragma unroll 1
    for (int step = 0; step < 7; ++step) {
        const bool enough = maxima.number_from(middle) >= static_cast<u32>(top_k);
        low = enough ? middle : low;
        high = enough ? high : middle;
        middle = 0.5f * (low + high);
        if (high < law.max || lanes == LANES) continue;
        group = fmaxf(group, __shfl_xor_sync(ALL_LANES, group, lanes));
        lanes *= 2;
        middle = -warp_max(-group);
    }
    return {low, mass_from(stats, num_blocks, law, low)};
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
        bound = bound_of_top_p(filters, law.max, from_fixed(open.known.sum), num_blocks);
    if (lane_id() == 0) {
        open.known.bound = bound;
        open.counted = is_countable<T>(open.known);
    }
    __syncwarp();
}
