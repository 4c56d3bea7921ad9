// Stage 1: every block of a row becomes (largest logit, sum of exponentials relative to it). The
// only stage that reads whole rows; it knows nothing of requests.
#pragma once
#include "law.cuh"
#include "rows.cuh"

__device__ inline float lane_sum(const float (&terms)[PER_LANE]) {
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        sums[i] = (terms[i] + terms[i + 4]) + (terms[i + 8] + terms[i + 12]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__device__ inline float block_max(const float (&logits)[PER_LANE]) {
    float largest = logits[0];
#pragma unroll
    for (int j = 1; j < PER_LANE; ++j) largest = max_nan(largest, logits[j]);
    return warp_reduce(largest, Max{});
}

// Sum of 2^((logit - max) * scale) over the block's logits from a threshold on.
__device__ inline float block_sum(
    const float (&logits)[PER_LANE], float max, float scale, float threshold) {
    float terms[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        terms[j] = logits[j] >= threshold ? exp2_fast(log2_weight(logits[j], max, scale)) : 0.0f;
    return warp_reduce(lane_sum(terms), Add{});
}

__device__ inline Mass block_mass(const float (&logits)[PER_LANE], float scale) {
    const float max = block_max(logits);
    if (GREEDY || max == -INFINITY) return {max, 0.0f};
    float terms[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) terms[j] = exp2_fast(log2_weight(logits[j], max, scale));
    return {max, warp_reduce(lane_sum(terms), Add{})};
}

__device__ inline void store_mass(Mass* stats, int block, const Mass& mass) {
    if (lane_id() == 0) stats[block] = mass;
}

// The statistics of blocks first, first + WARPS, ... below end: one warp's share.
template <typename T>
__device__ inline void stream_blocks(
    const Row<T>& row, Mass* stats, int first, int end, float scale) {
    int block = first;
    if (!ADJUSTED && row.is_vector_loadable()) {
        for (; block + WARPS < end && is_full_block(row, block + WARPS); block += 2 * WARPS) {
            const RawBlock<T> near = load_raw(row.data, block, lane_id());
            const RawBlock<T> far = load_raw(row.data, block + WARPS, lane_id());
            float logits[PER_LANE];
            unpack_all(near, logits);
            store_mass(stats, block, block_mass(logits, scale));
            unpack_all(far, logits);
            store_mass(stats, block + WARPS, block_mass(logits, scale));
        }
    }
    for (; block < end; block += WARPS) {
        float logits[PER_LANE];
        load_block(row, block, logits);
        store_mass(stats, block, block_mass(logits, scale));
    }
}

// A row's statistics from its blocks', by one warp, in one order.
__device__ inline Mass sum_blocks(const Mass* stats, int num_blocks, float scale) {
    constexpr int batch = 8;  // loads on their way at once
    Mass mine = {-INFINITY, 0.0f};
    for (int first = lane_id(); first < num_blocks; first += batch * LANES) {
        Mass loaded[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            const int block = first + i * LANES;
            loaded[i] = block < num_blocks ? load_mass(stats + block) : Mass{-INFINITY, 0.0f};
        }
#pragma unroll
        for (int i = 0; i < batch; ++i) mine = add_masses(mine, loaded[i], scale);
    }
    for (int distance = LANES / 2; distance; distance /= 2) {
        const Mass other = {
            __shfl_xor_sync(ALL_LANES, mine.max, distance),
            __shfl_xor_sync(ALL_LANES, mine.sum, distance)};
        mine = add_masses(mine, other, scale);
    }
    return mine;
}

// Loads every block that reaches `floor` and hands it on as (block, logits), by whole warps; two
// at a time, so that the second is on its way while the first is looked at.
template <typename T, typename Visit>
__device__ inline void visit_blocks(
    const Team& team, const Row<T>& row, const Mass* stats, float floor, Visit visit) {
    const int num_blocks = row.num_blocks();
    for (int first = team.warp(); first < num_blocks; first += team.num_warps * LANES) {
        const int mine = first + lane_id() * team.num_warps;
        const float largest = mine < num_blocks ? load_mass(stats + mine).max : -INFINITY;
        u32 wanted = __ballot_sync(ALL_LANES, largest >= floor && largest > -INFINITY);
        while (wanted) {
            const int near = first + (__ffs(static_cast<int>(wanted)) - 1) * team.num_warps;
            wanted &= wanted - 1;
            const bool two = wanted != 0;
            const int far = first + (__ffs(static_cast<int>(wanted)) - 1) * team.num_warps;
            wanted &= wanted - 1;
            float logits[PER_LANE], more[PER_LANE] = {};
            load_block(row, near, logits);
            if (two) load_block(row, far, more);
#pragma unroll 1
            for (int turn = 0; turn <= two; ++turn) {
                visit(turn ? far : near, logits);
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) logits[j] = more[j];
            }
        }
    }
}
