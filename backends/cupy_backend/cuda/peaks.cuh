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

constexpr int BLOCKS_A_LANE = MAX_BLOCKS / LANES;

// The largest logits of a row's blocks, in a warp's registers, and maybe others of the row.
template <int A_LANE>
struct Largest {
    float values[A_LANE];
};
using Maxima = Largest<BLOCKS_A_LANE>;

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

// The law of a usable row, unless it is left open.
template <int A_LANE>
__device__ inline bool find_among_peaks(
    const Largest<A_LANE>& largest, const Survey& row, const Filters& filters, float floor, Law& law) {
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
        for (int i = 0; i < A_LANE; ++i) {
            equal += largest.values[i] == value;
            if (largest.values[i] < value) next = fmaxf(next, largest.values[i]);
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
        if (are_enough(peaks, filters, exact, whole, kept)) break;
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
    if (found.is_open) found.law.log2_sum = row.sum;
    return found;
}

// The same for rows that are open, and whose blocks' masses nobody asks for: the block that may hide the
// largest logit is read. Two peaks in one block are its case.
template <typename T>
__device__ inline bool look_behind(
    const Row<T>& row, const Mass* stats, const Filters& filters, Law& law) {
    if (row.num_blocks() > MAX_BLOCKS || !is_direct(row) || (ADJUSTED && row.adjustment)) return false;
    Survey survey = {law.max, law.log2_sum, -INFINITY};
    float most = -INFINITY;
    int block = 0;
    Largest<BLOCKS_A_LANE + PER_LANE> largest;
#pragma unroll
    for (int i = 0; i < BLOCKS_A_LANE; ++i) {
        const int here = lane_id() + i * LANES;
        const Mass mass = here < row.num_blocks() ? stats[here] : Mass{-INFINITY, 0.0f};
        const float hidden = hidden_behind(mass, filters.temperature * LN_2);
        survey.hidden = fmaxf(survey.hidden, fminf(hidden, most));
        if (hidden > most) block = here;
        most = fmaxf(most, hidden);
        largest.values[i] = mass.max;
    }
    const float hidden = warp_max(most);
    const u32 lanes = __ballot_sync(ALL_LANES, most == hidden);
    const int lane = __ffs(static_cast<int>(lanes)) - 1;
    survey.hidden = warp_max(lane_id() == lane ? survey.hidden : most);
    block = __shfl_sync(ALL_LANES, block, lane);
    RawBlock<T> raw;
#pragma unroll
    for (uint4& word : raw.words)
        word = uint4{NOTHING<T>, NOTHING<T>, NOTHING<T>, NOTHING<T>};
    const i64 element = static_cast<i64>(block) * BLOCK_SIZE + lane_id() * 8;
    load_raw_if<T>(static_cast<int>(row.vocab_size - element),
                   reinterpret_cast<const char*>(row.data + element), raw.words);
#pragma unroll
    for (int i = 0; i < BLOCKS_A_LANE; ++i)
        if (lane_id() + i * LANES == block) largest.values[i] = -INFINITY;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) largest.values[BLOCKS_A_LANE + j] = unpack(raw, j);
    const float floor = floor_of_min_p(reach_of_min_p(filters), law.max);
    return find_among_peaks(largest, survey, filters, floor, law);
}
