// Bounds that a row's threshold cannot be below, from its blocks' statistics alone: only blocks that
// reach one are read again. 32 bounds are tried at once, a lane each.
#pragma once
#include "filters.cuh"

// Ascending bounds are the lanes': the last whose total `amount` over `count` things is enough, -1
// if none. By a whole team, uniform in it; two of these need a barrier between.
template <typename TeamT, typename Amount>
__device__ inline int highest_bound(
    const TeamT& team, Scratch& scratch, int count, float enough, Amount amount) {
    float mine = 0.0f;
#pragma unroll 4
    for (int i = team.warp(); i < count; i += TeamT::WARPS) mine += amount(i);
    scratch.bounding.amounts[team.warp()][lane_id()] = mine;
    team.sync();
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < TeamT::WARPS; ++warp)
        total += scratch.bounding.amounts[warp][lane_id()];
    const u32 reached = __ballot_sync(ALL_LANES, total >= enough);
    return LANES - 1 - __clz(static_cast<int>(reached));
}

// The log2 weight at which even a row that weighs so much everywhere has too little mass for top-p
// to reach below. A row's mass is at least 1.
__device__ inline float least_bound_of_top_p(int num_blocks, float sum, float top_p) {
    const float most = num_blocks * static_cast<float>(BLOCK_SIZE);
    return fminf(log2f((1.0f - top_p) * sum / most) - 1.0f, -1.0f);
}

// A logit that top-p's threshold is not below. Of a block's mass at least mass - 512 y is carried by
// logits of weight y or more, and at least its largest logit's weight if that is y or more.
template <typename TeamT>
__device__ inline float bound_of_top_p(const TeamT& team, Scratch& scratch, int num_blocks) {
    const RowAtHand& at = scratch.at_hand;
    const float sum = from_fixed(at.sum), top_p = at.filters.top_p;
    const float least = least_bound_of_top_p(num_blocks, sum, top_p);
    const float mine = least * (1.0f - lane_id() / static_cast<float>(LANES - 1));
    const float weight = exp2_fast(mine);
    const int best = highest_bound(
        team, scratch, static_cast<int>(scratch.num_heavy), (top_p + MASS_SLACK) * sum,
        [&](int i) {
            const HeavyBlock block = scratch.bounding.heavy[i];
            return fmaxf(block.mass - BLOCK_SIZE * weight, block.peak >= weight ? block.peak : 0.0f);
        });
    if (best < 0) return LEAST_LOGIT;
    // A little lower, for the rounding on the way from logarithms to logits.
    const float log2_bound = __shfl_sync(ALL_LANES, mine, best) - 1e-3f;
    return __fadd_rd(at.law.max, __fdiv_rd(log2_bound, at.law.scale));
}

// A logit that k blocks reach, so that the k-th largest logit is not below it. First by distances
// from the largest in octaves, then the best octave in equal steps.
template <typename TeamT>
__device__ COLD float bound_of_top_k(Scratch& scratch, int num_blocks) {
    const TeamT team = my_team<TeamT>();
    const RowAtHand& at = scratch.at_hand;
    if (at.filters.top_k > num_blocks) return LEAST_LOGIT;
    team.sync();
    const float enough = static_cast<float>(at.filters.top_k);
    const float distance = exp2_fast(21.0f - lane_id());
    float bound = at.law.max - distance;
    const Mass* stats = at.stats;
    const auto reaches = [&](int i) { return stats[i].max >= bound ? 1.0f : 0.0f; };
    int best = highest_bound(team, scratch, num_blocks, enough, reaches);
    if (best < 0) return LEAST_LOGIT;
    const float outer = __shfl_sync(ALL_LANES, distance, best);
    bound = at.law.max - outer * (1.0f - lane_id() / static_cast<float>(2 * LANES));
    team.sync();
    best = highest_bound(team, scratch, num_blocks, enough, reaches);
    return __shfl_sync(ALL_LANES, bound, best);
}
