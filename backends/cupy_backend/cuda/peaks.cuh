// A row's law by one warp, from its blocks' statistics alone. Most rows have a few logits that carry
// all that filters keep: the largest of the blocks' maxima. Blocks whose other logits weigh too little hide
// none of them.
#pragma once
#include "bounds.cuh"
#include "gather.cuh"

// What statistics tell of a row. `is_open`: not enough. Its law then keeps logits from the threshold on and
// maybe others, and its sum is the most that it may be, `spread` above the least, as logarithms. `is_lone`:
// blocks that keep something keep their largest logits alone.
struct FoundLaw {
    Law law;
    float sum;  // the row's
    float spread;
    float bound;  // of an open one: what is kept is not below; -inf if that was not looked for
    bool is_open;
    bool is_lone;
};

// What is left by top-k and min-p of a row, as far as its peaks tell: logits from `lowest` on, and between
// which masses. `whole` is the row's, or more.
struct Rest {
    float lowest;
    double least;
    double most;
    bool exact;
};

__device__ inline Rest rest_of(
    const Peaks& peaks, const Filters& filters, float floor, double whole) {
    const bool mine = peaks.here();
    if (!cuts_before_top_p(filters)) return {-INFINITY, whole, whole, false};
    const u32 top_k = static_cast<u32>(filters.top_k);
    const u32 reach = __ballot_sync(ALL_LANES, mine && top_k > 0 && peaks.number >= top_k);
    const double mass = static_cast<double>(peaks.mass);
    if (!reach && peaks.level < floor) return {-INFINITY, mass, mass, true};
    if (!reach) return {-INFINITY, mass, whole, false};
    const float lowest = warp_max(reach >> lane_id() & 1 ? peaks.value : -INFINITY);
    const u32 lanes = __ballot_sync(ALL_LANES, mine && peaks.value == lowest);
    const double exact = static_cast<double>(
        __shfl_sync(ALL_LANES, peaks.reached, __ffs(static_cast<int>(lanes)) - 1));
    return {lowest, exact, exact, true};
}

// Whether peaks tell what is kept, and of which lanes.
__device__ inline bool are_enough(
    const Peaks& peaks, const Filters& filters, const Rest& rest, u32& kept) {
    const bool mine = peaks.here() && peaks.value >= rest.lowest;
    const double above = static_cast<double>(peaks.above);
    const bool all = filters.top_p >= 1.0f;
    kept = __ballot_sync(ALL_LANES, mine && (all || above < filters.top_p * rest.least));
    if (all) return rest.exact;
    const u32 perhaps = __ballot_sync(ALL_LANES, mine && above < filters.top_p * rest.most);
    return kept == perhaps && static_cast<double>(peaks.mass) >= filters.top_p * rest.most;
}

// What is known of a row that peaks leave open.
__device__ inline void bound_law(
    const Peaks& peaks, const Filters& filters, const Rest& rest, FoundLaw& found) {
    const bool all = filters.top_p >= 1.0f;
    const double least = all ? rest.least : filters.top_p * (1.0 - MASS_SLACK) * rest.least;
    const bool kept = peaks.here() && (all || static_cast<double>(peaks.above) < least);
    found.law.threshold = fminf(-warp_max(kept ? -peaks.value : -INFINITY), found.law.max);
    found.law.log2_sum = log2f(static_cast<float>(rest.most * (1.0 + MASS_SLACK) / FIXED_ONE));
    found.spread =
        found.law.log2_sum - fmaxf(log2f(static_cast<float>(least / FIXED_ONE)), 0.0f);
}

// The same where blocks that hold what top-k leaves weigh less than the row.
__device__ inline void look_at_blocks(
    const Mass* stats, int num_blocks, const Filters& filters, float floor, FoundLaw& found,
    Rest& rest) {
    const Reach reach = reach_of_blocks(stats, num_blocks, found.law, filters.top_k);
    rest.most = fmin(rest.most, to_fixed(reach.mass) * (1.0 + MASS_SLACK));
    found.bound = fmaxf(floor, fmaxf(reach.level, LEAST_LOGIT));
}

// The law of a row that peaks tell, `kept` being the lanes of what it keeps.
__device__ inline void set_law(const Peaks& peaks, u32 kept, Law& law) {
    law.threshold = -warp_max(kept >> lane_id() & 1 ? -peaks.value : -INFINITY);
    const u32 last = __ballot_sync(ALL_LANES, peaks.value == law.threshold);
    const u64 mass = __shfl_sync(ALL_LANES, peaks.reached, __ffs(static_cast<int>(last)) - 1);
    law.log2_sum = log2f(from_fixed(mass));
}

// The law of a usable row, or what is known of it.
__device__ inline void find_among_peaks(
    const Mass* stats, int num_blocks, const Survey& row, const Filters& filters, FoundLaw& found) {
    const float floor = floor_of_min_p(reach_of_min_p(filters), row.max);
    const bool cuts = cuts_before_top_p(filters);
    const Peaks peaks = gather_peaks(stats, num_blocks, found.law, row, floor);
    Rest rest = rest_of(peaks, filters, floor, to_fixed(row.sum) * (cuts ? 1.0 + MASS_SLACK : 1.0));
    u32 kept = 0;
    found.is_open = !are_enough(peaks, filters, rest, kept);
    if (found.is_open && filters.top_k > 0 && filters.top_p < 1.0f && num_blocks >= LANES) {
        look_at_blocks(stats, num_blocks, filters, floor, found, rest);
        found.is_open = !are_enough(peaks, filters, rest, kept);
    }
    if (!found.is_open) return set_law(peaks, kept, found.law);
    if (!cuts) found.bound = bound_of_top_p(filters, row.max, row.sum, num_blocks);
    bound_law(peaks, filters, rest, found);
}

// Of a row with more blocks than a warp looks through.
__device__ inline FoundLaw find_large_row(
    const Mass* stats, int num_blocks, const Filters& filters) {
    FoundLaw found = {
        plain_law(stats, num_blocks, filters.temperature), 0.0f, 0.0f, -INFINITY, false, false};
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
    const Survey row = survey_row(stats, num_blocks, scale, filters.temperature * LN_2);
    FoundLaw found = {{row.max, -INFINITY, scale, 0.0f}, row.sum, 0.0f, -INFINITY, false, false};
    if (!found.law.is_usable()) return found;
    find_among_peaks(stats, num_blocks, row, filters, found);
    found.is_lone = !found.is_open;
    return found;
}
