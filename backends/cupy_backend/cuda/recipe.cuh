// Stage 2: a row's law from its blocks' statistics, filters included. The row itself is read again
// only where its blocks say that a threshold may lie.
#pragma once
#include "radix.cuh"
#include "variant.cuh"

// Lists the logits from `floor` on; more than MAX_CANDIDATES are counted, not listed.
template <typename T>
__device__ inline void list_candidates(
    const Team& team, Scratch& scratch, const Row<T>& row, const Mass* stats, float floor) {
    if (team.thread() == 0) scratch.num_candidates = 0;
    team.sync();
    visit_blocks(team, row, stats, floor, [&](int, const float(&logits)[PER_LANE]) {
        u32 kept[PER_LANE], count = 0;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            kept[j] = __ballot_sync(ALL_LANES, logits[j] >= floor && logits[j] > -INFINITY);
            count += __popc(kept[j]);
        }
        u32 place = 0;
        if (lane_id() == 0) place = atomicAdd(&scratch.num_candidates, count);
        place = __shfl_sync(ALL_LANES, place, 0);
        if (place + count > MAX_CANDIDATES) return;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const u32 before = kept[j] & ((1u << lane_id()) - 1);
            if (kept[j] >> lane_id() & 1) scratch.candidates[place + __popc(before)] = logits[j];
            place += __popc(kept[j]);
        }
    });
    team.sync();
}

__device__ inline void copy_blocks(
    const Team& team, Scratch& scratch, const Mass* stats, int num_blocks, const Law& law) {
    for (int block = team.thread(); block < num_blocks; block += team.threads()) {
        const Mass mass = load_mass(stats + block);
        scratch.block_max[block] = mass.max;
        scratch.block_mass[block] =
            mass.sum * exp2_fast(log2_weight(mass.max, law.max, law.scale));
    }
    team.sync();
}

// A logit that no threshold of these filters is below. Top-p's own bound is of use only where
// nothing was cut before it, because the mass before it must be known.
__device__ inline float bound_of(
    const Team& team, u64* slots, Scratch& scratch, int num_blocks, const Law& law,
    const Filters& filters, float sum) {
    if (filters.top_k > 0)
        return fmaxf(filters.floor, bound_of_top_k(scratch.block_max, num_blocks, filters.top_k));
    if (filters.floor > -INFINITY) return filters.floor;
    const float weight =
        bound_of_top_p(team, slots, scratch.block_mass, num_blocks, sum, filters.top_p);
    // A little lower, for the rounding on the way from the logarithm to the logit.
    return law.max + (weight - 1e-3f) / law.scale;
}

template <typename T>
__device__ COLD Kept filter_row(
    const Team& team, u64* slots, Scratch& scratch, const Row<T>& row, const Mass* stats,
    const Law& law, const Filters& filters, float sum) {
    const int num_blocks = row.num_blocks();
    float floor = filters.floor;
    if (num_blocks <= MAX_BLOCKS) {
        copy_blocks(team, scratch, stats, num_blocks, law);
        floor = bound_of(team, slots, scratch, num_blocks, law, filters, sum);
    }
    list_candidates(team, scratch, row, stats, floor);
    if (scratch.num_candidates <= MAX_CANDIDATES)
        return select_candidates(team, slots, scratch, law, filters, sum);
    return select_by_radix(team, scratch, row, stats, law, filters, floor, sum);
}

// The law of a row that was streamed. By a team; without filters by its first warp, in whose lanes
// alone the result is then right.
template <typename T>
__device__ COLD Law row_law(
    const Team& team, u64* slots, Scratch* scratch, const Row<T>& row, const Mass* stats,
    const Recipe& recipe, i64 request) {
    const float temperature = recipe.temperature[request];
    Law law = {-INFINITY, -INFINITY, logit_scale(temperature), 0.0f, 0};
    Mass mass = {};
    if (FILTERED || team.warp() == 0) mass = sum_blocks(stats, row.num_blocks(), law.scale);
    law.max = mass.max;
    law.usable = mass.max > -INFINITY && mass.max < INFINITY;
    law.log2_sum = log2f(mass.sum);
    if (temperature == 0.0f) law.threshold = law.max;
    if (!FILTERED || !law.usable || temperature == 0.0f) return law;
    const Filters filters = filters_of(recipe, request, law.max, temperature);
    if (!has_filters(filters)) return law;
    const Kept kept = filter_row(team, slots, *scratch, row, stats, law, filters, mass.sum);
    law.threshold = kept.threshold;
    law.log2_sum = log2f(kept.sum);
    return law;
}
