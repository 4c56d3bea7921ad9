// Which logits the filters keep, given those that might be kept: integer sums decide, so the order
// in which candidates were found cannot matter.
#pragma once
#include "law.cuh"
#include "statistics.cuh"

constexpr int MAX_CANDIDATES = 1024;
constexpr int MAX_BLOCKS = 1024;  // of a row whose bounds are looked for
constexpr int NUM_BINS = 256;
constexpr float FIXED_ONE = 1099511627776.0f;  // 2^40

struct Filters {
    float floor;  // of min-p, as a logit
    int top_k;    // 0: off
    float top_p;  // 1: off
};

// One team's shared memory.
struct Scratch {
    float candidates[MAX_CANDIDATES];
    u64 masses[MAX_CANDIDATES];
    float block_max[MAX_BLOCKS];
    float block_mass[MAX_BLOCKS];
    u32 num_candidates;
    u64 sum;
    float value;
    u32 bin;
};

struct Kept {
    float threshold;
    float sum;
};

// 2^log2_weight as an integer: addition of these has no order.
__device__ inline u64 fixed_weight(float log2_weight) {
    return static_cast<u64>(exp2_fast(log2_weight) * FIXED_ONE);
}

__device__ inline Filters filters_of(const Recipe& recipe, i64 request, float max, float temperature) {
    const float min_p = recipe.min_p[request];
    Filters filters = {-INFINITY, recipe.top_k[request], recipe.top_p[request]};
    if (min_p > 0.0f) {
        const double exact = max + static_cast<double>(temperature) * log(static_cast<double>(min_p));
        filters.floor = __double2float_ru(exact);
    }
    return filters;
}

__device__ inline bool has_filters(const Filters& filters) {
    return filters.floor > -INFINITY || filters.top_k > 0 || filters.top_p < 1.0f;
}

// A logit that at least k blocks reach, so that the k-th largest logit is not below it. By a warp.
__device__ inline float bound_of_top_k(const float* block_max, int num_blocks, int k) {
    if (k > num_blocks) return -INFINITY;
    u32 bound = 0;
    for (u32 bit = 0x80000000u; bit > 0x8000u; bit >>= 1) {
        int reached = 0;
        for (int block = lane_id(); block < num_blocks; block += LANES)
            reached += float_key(block_max[block]) >= (bound | bit);
        if (warp_reduce(reached, Add{}) >= k) bound |= bit;
    }
    return bound <= float_key(-INFINITY) ? -INFINITY : key_float(bound);
}

// Whether all logits at or below max + log2_weight / scale weigh so little that top-p cuts them.
__device__ inline bool is_cut_by_top_p(
    const float* block_mass, int num_blocks, float log2_weight, float sum, float top_p) {
    const float most = BLOCK_SIZE * exp2_fast(log2_weight);
    float below = 0.0f;
    for (int block = lane_id(); block < num_blocks; block += LANES)
        below += fminf(block_mass[block], most);
    // The slack covers the rounding of both sums.
    return warp_reduce(below, Add{}) <= (1.0f - top_p) * sum - 4e-6f * sum;
}

// The largest of a grid of log2 weights for which that holds, -inf if none does.
__device__ inline float bound_of_top_p(
    const Team& team, u64* slots, const float* block_mass, int num_blocks, float sum, float top_p) {
    float low = log2f((1.0f - top_p) * sum / (num_blocks * static_cast<float>(BLOCK_SIZE))) - 1.0f;
    float high = 0.0f;
    if (!is_cut_by_top_p(block_mass, num_blocks, low, sum, top_p)) return -INFINITY;
    for (int round = 0; round < 3; ++round) {
        const float step = (high - low) / (team.num_warps + 1);
        const float mine = low + step * (team.warp() + 1);
        const bool cut = is_cut_by_top_p(block_mass, num_blocks, mine, sum, top_p);
        low = team_reduce(team, slots, cut ? mine : low, Max{});
        high = low + step;
    }
    return low;
}

// Ranks every candidate among all: its rank and the mass above it are its filters' verdict.
__device__ inline Kept select_candidates(
    const Team& team, u64* slots, Scratch& scratch, const Law& law, const Filters& filters,
    float row_sum) {
    constexpr int per_thread = MAX_CANDIDATES / (WARPS / 2 * LANES);
    const int count = static_cast<int>(scratch.num_candidates);
    for (int i = team.thread(); i < count; i += team.threads())
        scratch.masses[i] =
            fixed_weight(log2_weight(scratch.candidates[i], law.max, law.scale));
    team.sync();
    u64 above[per_thread];
    bool kept[per_thread];
    u64 sum = 0;
#pragma unroll
    for (int slot = 0; slot < per_thread; ++slot) {
        const int mine = team.thread() + slot * team.threads();
        above[slot] = 0;
        kept[slot] = mine < count;
        if (!kept[slot]) continue;
        const float logit = scratch.candidates[mine];
        int rank = 0;
        for (int other = 0; other < count; ++other) {
            const bool larger = scratch.candidates[other] > logit;
            rank += larger;
            above[slot] += larger ? scratch.masses[other] : 0;
        }
        kept[slot] = filters.top_k == 0 || rank < filters.top_k;
        if (kept[slot]) sum += scratch.masses[mine];
    }
    sum = team_reduce(team, slots, sum, Add{});
    // Without min-p and top-k the candidates are not all that there was before top-p.
    const bool all = filters.top_k == 0 && filters.floor == -INFINITY;
    const double whole = all ? static_cast<double>(row_sum) * FIXED_ONE : static_cast<double>(sum);
    float threshold = INFINITY;
    sum = 0;
#pragma unroll
    for (int slot = 0; slot < per_thread; ++slot) {
        if (!kept[slot]) continue;
        const int mine = team.thread() + slot * team.threads();
        const double before = static_cast<double>(above[slot]);
        if (filters.top_p < 1.0f && !(before < filters.top_p * whole)) continue;
        threshold = fminf(threshold, scratch.candidates[mine]);
        sum += scratch.masses[mine];
    }
    threshold = team_reduce(team, slots, threshold, Min{});
    sum = team_reduce(team, slots, sum, Add{});
    return {threshold, static_cast<float>(static_cast<double>(sum) / FIXED_ONE)};
}
