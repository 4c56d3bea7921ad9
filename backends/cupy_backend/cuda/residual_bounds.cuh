// What a residual weighs, as far as few of its blocks tell: block verification asks how likely draft
// tokens are kept, and the answer is seldom near enough to need all blocks.
#pragma once
#include "residual_race.cuh"

struct Bounds {
    float least;
    float most;
};

constexpr float MASS_SLACK_DOWN = 1.0f - 1.0f / 4096, MASS_SLACK_UP = 1.0f + 1.0f / 4096;
constexpr float NARROW_ENOUGH = 1.0f / 1024;  // of a block's bounds
constexpr int MOST_BLOCKS_READ = 3;           // by a warp

// Of a block's residual, from statistics of both rows.
__device__ inline Bounds bounds_of_block(const Pair& pair, const Mass* draft_stats, int block) {
    const float log2_most = __fadd_rn(log2_mass(pair.stats[block], pair.target_law), pair.log2_product);
    const float most = exp2_fast(log2_most);
    const float taken = exp2_fast(log2_mass(draft_stats[block], pair.draft_law));
    return {fmaxf(most * MASS_SLACK_DOWN - taken * MASS_SLACK_UP, 0.0f), most * MASS_SLACK_UP};
}

// Of the blocks that are a warp's: every sixteenth. It reads those that matter most.
__device__ inline Bounds bounds_of_share(const Pair& pair, const Mass* draft_stats, int num_blocks) {
    Bounds all = {0.0f, 0.0f};
    for (int first = warp_id(); first < num_blocks; first += LANES * CTA_WARPS) {
        const int block = first + lane_id() * CTA_WARPS;
        Bounds mine = {0.0f, 0.0f};
        if (block < num_blocks) mine = bounds_of_block(pair, draft_stats, block);
#pragma unroll 1
        for (int i = 0; i < MOST_BLOCKS_READ; ++i) {
            const float gap = mine.most - mine.least, widest = warp_max(gap);
            if (!(widest > NARROW_ENOUGH)) break;
            const u32 found = __ballot_sync(ALL_LANES, gap == widest);
            const int lane = __ffs(static_cast<int>(found)) - 1;
            const float mass = direct_residual(pair, first + lane * CTA_WARPS);
            if (lane_id() == lane) mine = {mass * MASS_SLACK_DOWN, mass * MASS_SLACK_UP};
        }
        all = {all.least + mine.least, all.most + mine.most};
    }
    return {warp_reduce(all.least, Add{}), warp_reduce(all.most, Add{})};
}

enum Answer { REFUSED, KEPT, OPEN_ANSWER };

// Whether a draft token is kept, given bounds of the residual's mass; rounding is allowed for.
__device__ inline Answer answer_of(float uniform, float log2_product, const Bounds& mass) {
    constexpr float margin = 1.0f / 4096;
    if (log2_product == 0.0f) return accepts(uniform, 0.0f) ? KEPT : REFUSED;
    if (accepts(uniform, log2_block_threshold(log2_product, mass.least) - margin)) return KEPT;
    if (!accepts(uniform, log2_block_threshold(log2_product, mass.most) + margin)) return REFUSED;
    return OPEN_ANSWER;
}
