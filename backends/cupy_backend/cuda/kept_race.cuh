// Draws from laws that keep something of blocks, but not all of it: few of the blocks are read, for their
// masses bound what is kept.
#pragma once
#include "residual_race.cuh"

// Mass of what a law keeps of a block, read again. By a warp.
template <typename T>
__device__ inline Mass read_kept(const Row<T>& row, const Mass* stats, const Law& law, int block) {
    float logits[PER_LANE];
    load_block(row, block, logits);
    const float max = stats[block].max;
    return {max, block_sum(logits, max, law.scale, law.threshold)};
}

// The row's blocks enter the race for the token's, a warp's every sixteenth; see race_residual. By a CTA.
template <typename T, typename KeyOf>
__device__ inline void race_kept(
    const Row<T>& row, const Mass* stats, const Law& law, KeyOf key, u64* best) {
    for (int first = warp_id(); first < row.num_blocks(); first += LANES * CTA_WARPS) {
        const int block = first + lane_id() * CTA_WARPS;
        float noise = 0.0f;
        u64 most = 0;
        if (block < row.num_blocks()) {
            const float log2_most = log2_mass(kept_of(stats[block], law, false), law);
            noise = log2_exponential(random_word(key(), BLOCK_LEVEL, block));
            most = racer_with(noise, block, __fadd_rn(log2_most, RESIDUAL_SLACK));
        }
        for (u64 known = 0;; known = __shfl_sync(ALL_LANES, known, 0)) {
            const u64 next = warp_reduce(most, Max{});
            if (next <= known) break;
            const int read = static_cast<int>(racer_id(next));
            const Mass kept = read_kept(row, stats, law, read);
            if (read == block) {
                most = 0;
                const u64 entered = racer_with(noise, block, log2_mass(kept, law));
                if (entered != 0) atomicMax(best, entered);
            }
            __syncwarp();
            if (lane_id() == 0) known = atomicCAS(best, 0ull, 0ull);
        }
    }
}
