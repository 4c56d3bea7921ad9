// What the statistics of a row's blocks tell at first sight. By one warp, as what follows.
#pragma once
#include "filters.cuh"

constexpr int BLOCKS_A_LANE = MAX_BLOCKS / LANES;

// A row's largest logit and mass, as row_mass adds it, and the largest logit that may hide behind another
// one of its block.
struct Survey {
    float max;
    float sum;
    float hidden;
};

// The largest logits of a lane's blocks. All are loaded at once: they come from afar, and from the
// first-level cache when they are looked at again.
struct Maxima {
    float values[BLOCKS_A_LANE];
    __device__ Maxima(const Mass* stats, int num_blocks) {
#pragma unroll
        for (int i = 0; i < BLOCKS_A_LANE; ++i) {
            const int block = lane_id() + i * LANES;
            values[i] = block < num_blocks ? stats[block].max : -INFINITY;
        }
    }
    // Of all lanes.
    __device__ float largest() const {
        float max = values[0];
#pragma unroll
        for (int i = 1; i < BLOCKS_A_LANE; ++i) max = max_nan(max, values[i]);
        return warp_max(max);
    }
    // Of all lanes' first ones.
    __device__ float least_of(int rounds) const {
        float least = INFINITY;
#pragma unroll
        for (int i = 0; i < BLOCKS_A_LANE; ++i)
            if (i < rounds) least = fminf(least, values[i]);
        return -warp_max(-least);
    }
    __device__ float largest_of_lane() const {
        float max = values[0];
#pragma unroll
        for (int i = 1; i < BLOCKS_A_LANE; ++i) max = fmaxf(max, values[i]);
        return max;
    }
    __device__ u32 number_from(float level) const {
        u32 number = 0;
#pragma unroll
        for (int i = 0; i < BLOCKS_A_LANE; ++i) number += values[i] >= level;
        return __reduce_add_sync(ALL_LANES, number);
    }
};

// A token whose logit is known before any is looked for, -inf if there is none.
struct KnownToken {
    int id = 0;
    float logit = -INFINITY;
};

// The same where it hides behind a larger logit of its block, relative to which it weighs `weight`, or a little
// more; 0 otherwise.
struct Beside {
    int block;
    float logit;
    float weight;
};

// Behind no branch: what is loaded comes with the statistics that are loaded next.
__device__ inline Beside beside_largest(const Mass* stats, KnownToken token, float scale) {
    const bool known = token.logit > -INFINITY;
    const int block = known ? static_cast<int>(static_cast<u32>(token.id) / BLOCK_SIZE) : 0;
    const float max = stats[block].max;
    const bool hides = known && token.logit < max;
    const float weight = exp2_fast(log2_weight(token.logit, max, scale)) * (1.0f - MASS_SLACK);
    return {block, hides ? token.logit : -INFINITY, hides ? weight : 0.0f};
}

// What a block's other logits weigh without those beside, a little more for rounding, and no more than its
// largest, `weight`.
__device__ inline float mass_behind(const Mass& block, float weight, float beside) {
    return weight * fminf(__fmaf_rn(block.sum, 1.000004f, -1.0f) - beside, 1.0f);
}

// No code is unrolled that need not be: it comes from memory, and is run once.
__device__ inline Survey survey_row(
    const Mass* stats, int num_blocks, float scale, float inverse_scale, const Beside& beside) {
    Survey row = {Maxima(stats, num_blocks).largest(), 0.0f, 0.0f};
    float behind = 1e-30f;  // less is not told from nothing
#pragma unroll 2
    for (int block = lane_id(); block < num_blocks; block += LANES) {
        const Mass mass = stats[block];
        const float weight = exp2_fast(log2_weight(mass.max, row.max, scale));
        row.sum = __fmaf_rn(mass.sum, weight, row.sum);
        behind = fmaxf(behind, mass_behind(mass, weight, block == beside.block ? beside.weight : 0.0f));
    }
    row.sum = warp_reduce(row.sum, Add{});
    row.hidden = warp_max(__fadd_ru(row.max, (log2_fast(behind) + 0.0015f) * inverse_scale));
    return row;
}
