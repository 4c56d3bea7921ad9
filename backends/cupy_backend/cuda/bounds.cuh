// Bounds that a row's threshold cannot be below, from its blocks' statistics alone: only blocks that
// reach one are read again. By all threads of a CTA, the same in each.
#pragma once
#include "filters.cuh"

// The row's mass.
__device__ inline u64 fixed_mass(Scratch& scratch, const Mass* stats, int num_blocks) {
    const Law& law = scratch.at_hand.known.law;
    u64 sum = 0;
    for (int block = thread_id(); block < num_blocks; block += CTA_THREADS) {
        const Mass mass = stats[block];
        const float weight = exp2_fast(log2_weight(mass.max, law.max, law.scale));
        sum += static_cast<u64>(mass.sum * weight * FIXED_ONE);
    }
    return cta_sum(scratch, sum);
}

// A logit that top-p's threshold is not below: all logits that weigh less than it does have less than
// 1 - top_p of the mass together. A little lower, for rounding.
__device__ inline float bound_of_top_p(const Law& law, float top_p, float sum, i64 vocab_size) {
    const float share = (1.0f - top_p - MASS_SLACK) * sum / static_cast<float>(vocab_size);
    if (!(share > 0.0f)) return LEAST_LOGIT;
    return __fadd_rd(law.max, __fdiv_rd(fminf(log2f(share), 0.0f) - 1e-3f, law.scale));
}

// Ascending bounds are the lanes': the last that `enough` blocks reach, -1 if none.
__device__ inline int highest_bound(
    Scratch& scratch, const Mass* stats, int num_blocks, float enough, float bound) {
    float mine = 0.0f;
#pragma unroll 4
    for (int block = warp_id(); block < num_blocks; block += CTA_WARPS)
        mine += stats[block].max >= bound ? 1.0f : 0.0f;
    scratch.amounts[warp_id()][lane_id()] = mine;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < CTA_WARPS; ++warp) total += scratch.amounts[warp][lane_id()];
    __syncthreads();
    const u32 reached = __ballot_sync(ALL_LANES, total >= enough);
    return LANES - 1 - __clz(static_cast<int>(reached));
}

// A logit that k blocks reach, so that the k-th largest logit is not below it. First by distances
// from the largest in octaves, then the best octave in equal steps.
__device__ inline float bound_of_top_k(
    Scratch& scratch, const Mass* stats, int num_blocks, float max, int top_k) {
    if (top_k > num_blocks) return LEAST_LOGIT;
    const float enough = static_cast<float>(top_k);
    const float distance = exp2_fast(21.0f - lane_id());
    int best = highest_bound(scratch, stats, num_blocks, enough, max - distance);
    if (best < 0) return LEAST_LOGIT;
    const float outer = __shfl_sync(ALL_LANES, distance, best);
    const float bound = max - outer * (1.0f - lane_id() / static_cast<float>(2 * LANES));
    best = highest_bound(scratch, stats, num_blocks, enough, bound);
    return __shfl_sync(ALL_LANES, bound, best);
}

// Completes what is known of the row at hand: its mass, and a bound from which on there is all that
// top-k and min-p leave, or all that top-p keeps if it is alone.
template <typename T>
__device__ COLD void bound_row(Scratch& scratch) {
    const Known& known = scratch.at_hand.known;
    const Filters& filters = known.filters;
    const Mass* stats = scratch.at_hand.stats;
    const Row<T>& row = row_of<T>(scratch);
    const u64 sum = fixed_mass(scratch, stats, row.num_blocks());
    float bound = floor_of_min_p(reach_of_min_p(filters), known.law.max);
    if (filters.top_k > 0)
        bound = fmaxf(bound, bound_of_top_k(scratch, stats, row.num_blocks(), known.law.max,
                                            filters.top_k));
    if (!cuts_before_top_p(filters))
        bound = bound_of_top_p(known.law, filters.top_p, from_fixed(sum), row.vocab_size);
    __syncthreads();
    if (thread_id() == 0) {
        scratch.at_hand.known.sum = sum;
        scratch.at_hand.known.bound = bound;
    }
    __syncthreads();
}
