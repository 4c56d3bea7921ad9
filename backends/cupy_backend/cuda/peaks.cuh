// A row's law by one warp, from its blocks' statistics alone. Most rows have a few logits that carry
// all that filters keep: the blocks' largest, extracted from the largest on. Blocks whose other
// logits weigh too little hide none of them.
#pragma once
#include "filters.cuh"

constexpr int MAX_PEAKS = 16;

// What statistics tell of a row. `is_open`: not enough. Its law then keeps logits from the threshold on and
// maybe others, and its sum is the most that it may be, `spread` above the least, as logarithms. `is_lone`:
// blocks that keep something keep their largest logits alone.
struct FoundLaw {
    Law law;
    float sum;  // the row's
    float spread;
    bool is_open;
    bool is_lone;
};

constexpr int BLOCKS_A_LANE = MAX_BLOCKS / LANES;

// The largest logits of a row's blocks, in a warp's registers.
struct Maxima {
    float values[BLOCKS_A_LANE];
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
    float masses[BLOCKS_A_LANE];
    Survey row = {-INFINITY, 0.0f, -INFINITY};
#pragma unroll
    for (int i = 0; i < BLOCKS_A_LANE; ++i) {
        const int block = lane_id() + i * LANES;
        const Mass mass = block < num_blocks ? stats[block] : Mass{-INFINITY, 0.0f};
        maxima.values[i] = mass.max;
        masses[i] = mass.sum;
    }
#pragma unroll
    for (int i = 0; i < BLOCKS_A_LANE; ++i) row.max = max_nan(row.max, maxima.values[i]);
    row.max = warp_max(row.max);
#pragma unroll
    for (int i = 0; i < BLOCKS_A_LANE; ++i) {
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
    const Peaks& peaks, const Filters& filters, bool exact, double whole, int& kept) {
    kept = peaks.found;
    if (filters.top_p >= 1.0f) return exact;
    if (!cuts_before_top_p(filters))
        return static_cast<double>(peaks.mass) >= filters.top_p * whole;
    const double least = static_cast<double>(peaks.mass);
    const double most = exact ? least : whole;
    if (!exact && least < filters.top_p * most) return false;
    const double above = static_cast<double>(peaks.above);
    const bool mine = lane_id() < peaks.found;
    const u32 surely = __ballot_sync(ALL_LANES, mine && above < filters.top_p * least);
    const u32 perhaps = __ballot_sync(ALL_LANES, mine && above < filters.top_p * most);
    kept = __popc(surely);
    return surely == perhaps;
}

// What is known of a row that peaks leave open.
__device__ inline void bound_law(
    const Peaks& peaks, const Filters& filters, double whole, FoundLaw& found) {
    const double known = cuts_before_top_p(filters) ? static_cast<double>(peaks.mass) : whole;
    const bool all = filters.top_p >= 1.0f;
    const double least = all ? known : filters.top_p * (1.0 - MASS_SLACK) * known;
    const bool kept =
        lane_id() < peaks.found && (all || static_cast<double>(peaks.above) < least);
    const int last = LANES - 1 - __clz(static_cast<int>(__ballot_sync(ALL_LANES, kept)));
    const float lowest = __shfl_sync(ALL_LANES, peaks.value, last < 0 ? 0 : last);
    found.law.threshold = last < 0 ? found.law.max : lowest;
    found.law.log2_sum = log2f(static_cast<float>(whole * (1.0 + MASS_SLACK) / FIXED_ONE));
    found.spread =
        found.law.log2_sum - fmaxf(log2f(static_cast<float>(least / FIXED_ONE)), 0.0f);
}

// The law of a usable row, or what is known of it.
__device__ inline void find_among_peaks(
    const Maxima& maxima, const Survey& row, const Filters& filters, FoundLaw& found) {
    Law& law = found.law;
    const u32 top_k = static_cast<u32>(filters.top_k);
    const float floor = floor_of_min_p(reach_of_min_p(filters), row.max);
    const bool cuts = cuts_before_top_p(filters);
    const double whole = static_cast<double>(row.sum) * FIXED_ONE * (cuts ? 1.0 + MASS_SLACK : 1.0);
    // Without top-p, top-k is only reached by as many peaks.
    const int most = filters.top_p >= 1.0f && top_k > MAX_PEAKS && filters.min_p == 0.0f ? 0 : MAX_PEAKS;
    Peaks peaks = {0, 0, 0.0f, 0, 0};
    int kept = 0;
    found.is_open = true;
    law.threshold = -INFINITY;
#pragma unroll 1
    for (float value = row.max; value > row.hidden && value >= floor && peaks.found < most;) {
        float next = -INFINITY;
        u32 equal = 0;
#pragma unroll
        for (int i = 0; i < BLOCKS_A_LANE; ++i) {
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
        found.is_open = !are_enough(peaks, filters, exact, whole, kept);
        if (!found.is_open) break;
    }
    if (found.is_open) return bound_law(peaks, filters, whole, found);
    law.threshold = __shfl_sync(ALL_LANES, peaks.value, kept - 1);
    const u64 next = __shfl_sync(ALL_LANES, peaks.above, kept % LANES);
    law.log2_sum = log2f(from_fixed(kept < peaks.found ? next : peaks.mass));
}

// Of a row with more blocks than a warp looks through.
__device__ inline FoundLaw find_large_row(
    const Mass* stats, int num_blocks, const Filters& filters) {
    FoundLaw found = {plain_law(stats, num_blocks, filters.temperature), 0.0f, 0.0f, false, false};
    if (!has_filters(filters) || !found.law.is_usable()) return found;
    found.is_open = true;
    found.sum = exp2f(found.law.log2_sum);
    found.law.threshold = found.law.max;
    found.law.log2_sum += 2 * MASS_SLACK;
    found.spread = found.law.log2_sum;
    return found;
}

// By one warp, the same in all its lanes.
__device__ COLD FoundLaw find_row_law(const Mass* stats, int num_blocks, const Filters& filters) {
    if (!has_filters(filters) || num_blocks > MAX_BLOCKS)
        return find_large_row(stats, num_blocks, filters);
    const float scale = logit_scale(filters.temperature);
    Maxima maxima;
    const Survey row = survey_row(stats, num_blocks, scale, filters.temperature * LN_2, maxima);
    FoundLaw found = {{row.max, -INFINITY, scale, 0.0f}, row.sum, 0.0f, false, false};
    if (!found.law.is_usable()) return found;
    find_among_peaks(maxima, row, filters, found);
    found.is_lone = !found.is_open;
    return found;
}
