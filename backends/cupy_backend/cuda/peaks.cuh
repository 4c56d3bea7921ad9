// Rows in which a few logits carry what the filters keep, which are most: their blocks' statistics
// tell all, nothing is read again. One warp extracts the blocks' maxima from the largest on. A block
// whose other logits weigh less together than the last one extracted hides none.
#pragma once
#include "filters.cuh"

constexpr int MAX_PEAKS = 16;  // each costs as much as reading half a block

// The maxima of a row's blocks, in a warp's registers.
struct Maxima {
    static constexpr int PER_WARP_LANE = MAX_BLOCKS / LANES;
    float values[PER_WARP_LANE];
    // The largest below a logit, -inf if there is none.
    __device__ float next(float below) const {
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < PER_WARP_LANE; ++i)
            if (values[i] < below) largest = fmaxf(largest, values[i]);
        return warp_max(largest);
    }
    __device__ u32 count(float value) const {
        u32 equal = 0;
#pragma unroll
        for (int i = 0; i < PER_WARP_LANE; ++i) equal += values[i] == value;
        return __reduce_add_sync(ALL_LANES, equal);
    }
};

// Loads a row's maxima; its largest logit and its mass.
__device__ inline Mass survey_row(
    const Mass* stats, int num_blocks, float scale, Maxima& maxima) {
    float masses[Maxima::PER_WARP_LANE];
    float largest = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Maxima::PER_WARP_LANE; ++i) {
        const int block = lane_id() + i * LANES;
        const Mass mass = block < num_blocks ? stats[block] : Mass{-INFINITY, 0.0f};
        maxima.values[i] = mass.max;
        masses[i] = mass.sum;
        largest = max_nan(largest, mass.max);
    }
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < Maxima::PER_WARP_LANE; ++i)
        sum += masses[i] * exp2_fast(log2_weight(maxima.values[i], largest, scale));
    return {largest, warp_reduce(sum, Add{})};
}

// The extracted maxima: lane i has the i-th and the mass of those before it.
struct Peaks {
    int found;
    float value;
    u64 above;
    u64 mass;     // of all
    float least;  // no logit from here on is missing, unless a block hides it
    bool exact;   // all that top-k and min-p leave was extracted
};

// Extracts until the filters cannot keep more; `found` is 0 if that takes too many.
__device__ inline Peaks extract_peaks(
    const Maxima& maxima, const Law& law, const Filters& filters, float floor, double most) {
    Peaks peaks = {0, 0.0f, 0, 0, law.max, false};
    u32 number = 0;
#pragma unroll 1
    for (float value = law.max;; ++peaks.found) {
        peaks.exact = value < floor || value == -INFINITY;
        if (peaks.exact) peaks.least = floor;
        if (peaks.exact) return peaks;
        if (peaks.found == MAX_PEAKS) break;
        if (lane_id() == peaks.found) {
            peaks.value = value;
            peaks.above = peaks.mass;
        }
        const u32 count = maxima.count(value);
        number += count;
        peaks.mass += count * fixed_weight(log2_weight(value, law.max, law.scale));
        peaks.least = value;
        peaks.exact = filters.top_k > 0 && number >= static_cast<u32>(filters.top_k);
        const bool enough = static_cast<double>(peaks.mass) >= filters.top_p * most;
        if (peaks.exact || (filters.top_p < 1.0f && enough)) {
            ++peaks.found;
            return peaks;
        }
        value = maxima.next(value);
    }
    peaks.found = 0;
    return peaks;
}

// Whether a block that reaches `least` may have another logit that does. The slack is for rounding.
__device__ inline bool hides_logits(const Mass& block, float least, float scale) {
    if (block.max < least) return false;
    const float others = block.sum * 1.000004f - 1.0f;
    return !(others * exp2_fast(log2_weight(block.max, least, scale)) < 0.999f);
}

__device__ inline bool any_block_hides(
    const Maxima& maxima, const Mass* stats, float least, float scale) {
    bool hides = false;
#pragma unroll
    for (int i = 0; i < Maxima::PER_WARP_LANE; ++i)
        if (maxima.values[i] >= least)
            hides = hides || hides_logits(stats[lane_id() + i * LANES], least, scale);
    return __any_sync(ALL_LANES, hides);
}

// Every block that is kept keeps one logit.
__device__ inline void store_peaks(
    const Maxima& maxima, Mass* stats, int num_blocks, float threshold) {
#pragma unroll
    for (int i = 0; i < Maxima::PER_WARP_LANE; ++i) {
        const int block = lane_id() + i * LANES;
        const bool kept = maxima.values[i] >= threshold;
        if (block < num_blocks)
            stats[block] = {kept ? maxima.values[i] : -INFINITY, kept ? 1.0f : 0.0f};
    }
}

// By one warp: `stats` become those of what is kept if the row is decided.
__device__ COLD PeakedRow filter_peaks(
    Mass* stats, int num_blocks, float scale, Filters filters) {
    Maxima maxima;
    const Mass whole = survey_row(stats, num_blocks, scale, maxima);
    PeakedRow result = {{}, whole.max, false};
    const Law law = {whole.max, -INFINITY, scale, 0.0f};
    // Without top-p, top-k is only reached by as many peaks.
    if (!law.is_usable() || (filters.top_p >= 1.0f && filters.top_k > MAX_PEAKS)) return result;
    const bool cut = filters.top_k > 0 || filters.min_p > 0.0f;
    // The mass before top-p; what is cut before that is not known, only that it is something.
    double mass = static_cast<double>(whole.sum) * FIXED_ONE;
    const double most = cut ? mass * (1.0 + MASS_SLACK) : mass;
    const float floor = bound_of_min_p(filters, law.max);
    const Peaks peaks = extract_peaks(maxima, law, filters, floor, most);
    if (peaks.found == 0 || any_block_hides(maxima, stats, peaks.least, scale)) return result;
    if (cut) mass = static_cast<double>(peaks.mass);
    const bool stays =
        filters.top_p >= 1.0f || static_cast<double>(peaks.above) < filters.top_p * mass;
    const u32 kept = __ballot_sync(ALL_LANES, lane_id() < peaks.found && stays);
    const int number = __popc(kept);
    if (cut && !peaks.exact && number < peaks.found) return result;
    result.is_decided = true;
    result.kept.threshold = __shfl_sync(ALL_LANES, peaks.value, number - 1);
    const u64 next = __shfl_sync(ALL_LANES, peaks.above, number % LANES);
    result.kept.sum = number < peaks.found ? next : peaks.mass;
    store_peaks(maxima, stats, num_blocks, result.kept.threshold);
    return result;
}
