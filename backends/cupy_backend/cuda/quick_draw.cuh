// A draw from rows as they mostly are: few blocks, read by whole vectors, not adjusted. Each thread of a
// team has four blocks' statistics at hand, and nothing is called.
#pragma once
#include "finish.cuh"

constexpr int QUICK_BLOCKS = 4 * DrawTeam::THREADS;

__device__ inline bool can_draw_quickly(const Row<TargetLogit>& row) {
    return !FILTERED && !ADJUSTED && is_direct(row) && row.num_blocks() <= QUICK_BLOCKS;
}

// Results of a team, each in slots of its own, so that nobody waits until they can be used again.
struct QuickSlots {
    u64* of_warps;
    __device__ u64* stage(int i) const { return of_warps + i * CTA_WARPS; }
};

__device__ inline u64 quick_best(const DrawTeam& team, u64* slots, u64 best) {
    slots += team.first_warp;
    best = warp_reduce(best, Max{});
    if (lane_id() == 0) slots[team.warp()] = best;
    team.sync();
#pragma unroll
    for (int warp = 0; warp < DrawTeam::WARPS; ++warp) best = Max{}(best, slots[warp]);
    return best;
}

__device__ inline float quick_max(const DrawTeam& team, u64* slots, float largest) {
    float* mine = reinterpret_cast<float*>(slots + team.first_warp);
    largest = warp_max(largest);
    if (lane_id() == 0) mine[team.warp()] = largest;
    team.sync();
#pragma unroll
    for (int warp = 0; warp < DrawTeam::WARPS; ++warp) largest = max_nan(largest, mine[warp]);
    return largest;
}

// Four neighbouring blocks' statistics, with the logarithms of their sums, which need no law.
struct FourBlocks {
    float max[4];
    float log2_sum[4];
    __device__ void set(int i, const Mass& mass, bool greedy) {
        max[i] = mass.max;
        log2_sum[i] = greedy ? 0.0f : log2_fast(mass.sum);
    }
};

// By a team whose threads have four neighbouring blocks each; greedy, of equals the first wins.
__device__ inline u64 race_blocks(
    const DrawTeam& team, u64* slots, const Law& law, const FourBlocks& blocks, const Noise& noise,
    bool greedy) {
    float weights[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        weights[i] = log2_mass(blocks.max[i], blocks.log2_sum[i], law);
        if (greedy) weights[i] = blocks.max[i] == law.max ? 0.0f : -INFINITY;
    }
    return quick_best(team, slots, race_four(noise, weights, 4 * team.thread()));
}

// The token of the best block.
__device__ inline i64 draw_quickly(
    const DrawTeam& team, u64* slots, const Row<TargetLogit>& row, const Law& law, u64 best,
    const DrawKey& key, bool greedy) {
    const u32 id = racer_id(best) * BLOCK_SIZE + 4 * team.thread();
    const bool there = id < row.vocab_size;
    FourLogits<TargetLogit> four = {};
    if (there) four = *reinterpret_cast<const FourLogits<TargetLogit>*>(row.data + id);
    Noise noise = {};
    if (!greedy) noise = noise_here(key, TOKEN_LEVEL, id / 4);
    float weights[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
        weights[j] = there ? kept_log2_weight(law, to_float(four.of[j])) : -INFINITY;
    const u64 first = quick_best(team, slots, race_four(noise, weights, id));
    return best == 0 || first == 0 ? NO_TOKEN : static_cast<i64>(racer_id(first));
}

// After a decision to draw from the target's row, whose statistics and noise are at hand.
__device__ inline void finish_quickly(
    const Params& p, Shared& shared, const Row<TargetLogit>& target, int row, const Mass* stats,
    const Noise& noise) {
    const DrawTeam team = my_team<DrawTeam>();
    const QuickSlots slots = {shared.slots};
    const bool greedy = GREEDY || shared.request.greedy;
    const Law& law = shared.target_laws[row];
    FourBlocks blocks;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int block = 4 * team.thread() + i;
        blocks.set(i, block < target.num_blocks() ? stats[block] : Mass{-INFINITY, 0.0f}, greedy);
    }
    const u64 best = race_blocks(team, slots.stage(1), law, blocks, noise, greedy);
    write_outputs(shared, draw_quickly(team, slots.stage(2), target, law, best,
                                       target_key(p, shared.request, row), greedy));
}
