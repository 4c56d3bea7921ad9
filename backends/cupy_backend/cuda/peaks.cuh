// A row's law by one warp, from its blocks' statistics alone. Most rows have a few logits that carry
// all that filters keep: the blocks' largest, extracted from the largest on. Blocks whose other
// logits weigh too little hide none of them.
#pragma once
#include "filters.cuh"

constexpr int MAX_PEAKS = 16;

// What statistics tell of a row. `is_open`: not enough, only the largest logit and the scale are
// known. `is_lone`: blocks that keep something keep their largest logits alone.
struct FoundLaw {
    Law law;
    bool is_open;
    bool is_lone;
};

// The largest logits of a row's blocks, in a warp's registers.
struct Maxima {
    static constexpr int PER_WARP_LANE = MAX_BLOCKS / LANES;
    float values[PER_WARP_LANE];
};

// A row's largest logit and mass, as row_mass adds it, and the largest logit that may hide behind
// another one of its block.
struct Survey {
    float max;
    float sum;
    float hidden;
};

// A little more than exact, for rounding.
__device__ inline float hidden_behind(const Mass& block, float inverse_scale) {
    const float others = log2_fast(__fmaf_rn(block.sum, 1.000004f, -1.0f)) + 0.0015f;
    return __fadd_ru(block.max, fminf(others * inverse_scale, 0.0f));
}

__device__ inline Survey survey_row(
    const Mass* stats, int num_blocks, float scale, float inverse_scale, Maxima& maxima) {
    float masses[Maxima::PER_WARP_LANE];
    Survey row = {-INFINITY, 0.0f, -INFINITY};
#pragma unroll
    for (int i = 0; i < Maxima::PER_WARP_LANE; ++i) {
        const int block = lane_id() + i * LANES;
        const Mass mass = block < num_blocks ? stats[block] : Mass{-INFINITY, 0.0f};
        maxima.values[i] = mass.max;
        masses[i] = mass.sum;
    }
#pragma unroll
    for (int i = 0; i < Maxima::PER_WARP_LANE; ++i) row.max = max_nan(row.max, maxima.values[i]);
    row.max = warp_max(row.max);
#pragma unroll
    for (int i = 0; i < Maxima::PER_WARP_LANE; ++i) {
        const float weight = exp2_fast(log2_weight(maxima.values[i], row.max, scale));
        row.sum = __fmaf_rn(masses[i], weight, row.sum);
        row.hidden = fmaxf(row.hidden, hidden_behind({maxima.values[i], masses[i]}, inverse_scale));
    }
    row.sum = warp_reduce(row.sum, Add{});
    row.hidden = warp_max(row.hidden);
    return row;
}

// The extracted maxima: lane i has the i-th and the mass of those before it.
struct Peaks {
    int found;
    u32 number;  // of logits, ties among them
    float value;
    u64 above;
    u64 mass;  // of all
};

// Whether no more is needed, and how many of the extracted ones are kept. `whole` is the mass that
// top-p is a share of, or more; `exact`: nothing else is left by top-k and min-p.
__device__ inline bool are_enough(
    const Peaks& peaks, const Filters& filters, bool exact, u64 others, double whole, int& kept) {
    kept = peaks.found;
    if (filters.top_p >= 1.0f) return exact;
    if (!cuts_before_top_p(filters))
        return static_cast<double>(peaks.mass) >= filters.top_p * whole;
    const double least = static_cast<double>(peaks.mass);
    const double most = exact ? least : fmin(whole, static_cast<double>(peaks.mass + others));
    if (!exact && least < filters.top_p * most) return false;
    const double above = static_cast<double>(peaks.above);
    const bool mine = lane_id() < peaks.found;
    const u32 surely = __ballot_sync(ALL_LANES, mine && above < filters.top_p * least);
    const u32 perhaps = __ballot_sync(ALL_LANES, mine && above < filters.top_p * most);
    kept = __popc(surely);
    return surely == perhaps;
}

// The law of a usable row, unless it is left open.
__device__ inline bool find_among_peaks(
    const Maxima& maxima, const Survey& row, const Filters& filters, float floor, Law& law) {
    const u32 top_k = static_cast<u32>(filters.top_k);
    // Without top-p, top-k is only reached by as many peaks.
    if (filters.top_p >= 1.0f && top_k > MAX_PEAKS && filters.min_p == 0.0f) return false;
    const bool cuts = cuts_before_top_p(filters);
    const double whole = static_cast<double>(row.sum) * FIXED_ONE * (cuts ? 1.0 + MASS_SLACK : 1.0);
    Peaks peaks = {0, 0, 0.0f, 0, 0};
    int kept = 0;
#pragma unroll 1
    for (float value = law.max;;) {
        if (value <= row.hidden || peaks.found == MAX_PEAKS) return false;
        float next = -INFINITY;
        u32 equal = 0;
#pragma unroll
        for (int i = 0; i < Maxima::PER_WARP_LANE; ++i) {
            equal += maxima.values[i] == value;
            if (maxima.values[i] < value) next = fmaxf(next, maxima.values[i]);
        }
        next = warp_max(next);
        equal = __reduce_add_sync(ALL_LANES, equal);
        if (lane_id() == peaks.found) {
            peaks.value = value;
            peaks.above = peaks.mass;
        }
        ++peaks.found;
        peaks.number += equal;
        peaks.mass += equal * fixed_weight(law, value);
        value = next;
        const bool exact = (top_k > 0 && peaks.number >= top_k) ||
                           (value < floor && row.hidden < floor);
        u64 others = ~0ull >> 4;
        if (top_k > peaks.number)
            others = (top_k - peaks.number) * fixed_weight(law, fmaxf(value, row.hidden));
        if (are_enough(peaks, filters, exact, others, whole, kept)) break;
        // Nothing further down is known.
        if (value < floor) return false;
    }
    law.threshold = __shfl_sync(ALL_LANES, peaks.value, kept - 1);
    const u64 next = __shfl_sync(ALL_LANES, peaks.above, kept % LANES);
    law.log2_sum = log2f(from_fixed(kept < peaks.found ? next : peaks.mass));
    return true;
}

// By one warp, the same in all its lanes.
__device__ inline FoundLaw find_row_law(const Mass* stats, int num_blocks, const Filters& filters) {
    FoundLaw found = {};
    const bool filtered = has_filters(filters);
    if (!filtered || num_blocks > MAX_BLOCKS) {
        found.law = plain_law(stats, num_blocks, filters.temperature);
        found.is_open = filtered && found.law.is_usable();
        return found;
    }
    const float scale = logit_scale(filters.temperature);
    const double reach = reach_of_min_p(filters);
    Maxima maxima;
    const Survey row = survey_row(stats, num_blocks, scale, filters.temperature * LN_2, maxima);
    found.law = {row.max, -INFINITY, scale, 0.0f};
    if (!found.law.is_usable()) return found;
    const float floor = floor_of_min_p(reach, row.max);
    found.is_lone = find_among_peaks(maxima, row, filters, floor, found.law);
    found.is_open = !found.is_lone;
    return found;
}
