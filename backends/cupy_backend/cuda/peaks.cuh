// A row's law by one warp, from its blocks' statistics alone. Most rows have a few logits that carry
// all that filters keep: the largest of the blocks' maxima. Blocks whose other logits weigh too little hide
// none of them.
#pragma once
#include "bounds.cuh"
#include "gather.cuh"

// What statistics tell of a row. `is_open`: not enough. Its law then keeps logits from the threshold on and
// maybe others, none below `lowest`, and its sum is the most that it may be, `spread` above the least, as
// logarithms. `is_lone`: blocks that keep something keep their largest logits alone.
struct FoundLaw {
    Law law;
    float sum;  // the row's
    float spread;
    float bound;  // of an open one: nor is what top-k and min-p leave; -inf if that was not looked for
    float lowest;
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

// A logit so heavy that top-k, min-p and top-p keep it whatever lies above: fewer than k logits weigh as much,
// and the others of what is left, which weigh `most`, have less than top-p of it together.
__device__ inline float surely_kept(const Filters& filters, const FoundLaw& found, double most) {
    const float rest = filters.top_p < 1.0f ? 1.0f - filters.top_p : 0.0f;
    float weight = fmaxf(rest * static_cast<float>(most / FIXED_ONE), filters.min_p);
    if (filters.top_k > 0)
        weight = fmaxf(weight, found.sum * exp2_fast(-log2_fast(static_cast<float>(filters.top_k))));
    const float distance = (log2_fast(weight) + HEAVY_SLACK) * LN_2 * filters.temperature;
    return __fadd_ru(found.law.max, distance);
}

// What is known of a row that peaks leave open.
__device__ inline void bound_law(
    const Peaks& peaks, const Filters& filters, const Rest& rest, FoundLaw& found) {
    const bool all = filters.top_p >= 1.0f;
    const double above = static_cast<double>(peaks.above);
    double least = all ? rest.least : filters.top_p * (1.0 - MASS_SLACK) * rest.least;
    double most = all ? rest.most : filters.top_p * (1.0 + MASS_SLACK) * rest.most;
    const bool kept = peaks.here() && (all || above < least);
    // Where the threshold is one of the peaks, no more is kept than those that may be.
    const bool perhaps = peaks.here() && above < most;
    const bool among = !all && static_cast<double>(peaks.mass) >= most;
    least = fmax(least, static_cast<double>(warp_reduce(kept ? peaks.reached : u64{0}, Max{})));
    most = rest.most;
    found.lowest = found.bound;
    if (among) {
        most = static_cast<double>(warp_reduce(perhaps ? peaks.reached : u64{0}, Max{}));
        found.lowest = -warp_max(perhaps ? -peaks.value : -INFINITY);
    }
    const float surely = fminf(surely_kept(filters, found, rest.most), found.law.max);
    found.law.threshold = fminf(-warp_max(kept ? -peaks.value : -INFINITY), surely);
    found.law.log2_sum = log2_fast(static_cast<float>(most * (1.0 + MASS_SLACK) / FIXED_ONE));
    found.spread =
        found.law.log2_sum - fmaxf(log2_fast(static_cast<float>(least / FIXED_ONE)), 0.0f);
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
    const Mass* stats, int num_blocks, const Survey& row, float beside, const Filters& filters,
    FoundLaw& found) {
    const float floor = floor_of_min_p(reach_of_min_p(filters), row.max);
    const bool cuts = cuts_before_top_p(filters);
    const Peaks peaks = gather_peaks(stats, num_blocks, found.law, row, beside, floor);
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
        plain_law(stats, num_blocks, filters.temperature), 0.0f, 0.0f, -INFINITY, -INFINITY};
    if (!has_filters(filters) || !found.law.is_usable()) return found;
    found.is_open = true;
    found.sum = exp2f(found.law.log2_sum);
    found.law.threshold = found.law.max;
    found.law.log2_sum += 2 * MASS_SLACK;
    found.spread = found.law.log2_sum;
    return found;
}

// By one warp, the same in all its lanes.
__device__ COLD FoundLaw find_row_law(
    const Mass* stats, int num_blocks, const Filters& filters, KnownToken token = {}) {
    if (!has_filters(filters) || num_blocks > MAX_BLOCKS)
        return find_large_row(stats, num_blocks, filters);
    const float scale = logit_scale(filters.temperature);
    const Beside beside = beside_largest(stats, token, scale);
    const Survey row = survey_row(stats, num_blocks, scale, filters.temperature * LN_2, beside);
    FoundLaw found = {{row.max, -INFINITY, scale, 0.0f}, row.sum, 0.0f, -INFINITY, -INFINITY};
    if (!found.law.is_usable()) return found;
    find_among_peaks(stats, num_blocks, row, beside.logit, filters, found);
    found.is_lone = !found.is_open && !(beside.logit >= found.law.threshold);
    return found;
}
