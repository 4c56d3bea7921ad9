// The logits that reach a bound, listed in shared memory, and which of them the filters keep.
// Integers decide, so the order in which candidates were found cannot matter.
#pragma once
#include "filters.cuh"

template <typename TeamT>
__device__ inline void clear_lists(const TeamT& team, Scratch& scratch) {
    if (team.thread() > 0) return;
    scratch.num_listed = scratch.num_candidates = scratch.undecided = 0;
    scratch.threshold_key = ~0u;
}

template <typename TeamT>
__device__ inline void cut_blocks(
    const TeamT& team, Mass* stats, int num_blocks, float threshold) {
    for (int block = team.thread(); block < num_blocks; block += TeamT::THREADS)
        if (stats[block].max < threshold) stats[block] = {-INFINITY, 0.0f};
}

// Lists the blocks that reach a bound.
template <typename TeamT>
__device__ inline void list_blocks(
    const TeamT& team, Scratch& scratch, const Mass* stats, int num_blocks, float bound) {
    const int end = (num_blocks + LANES - 1) / LANES * LANES;
    for (int block = team.thread(); block < end; block += TeamT::THREADS) {
        const bool reaches = block < num_blocks && stats[block].max >= bound;
        const u32 place = take_place(&scratch.num_listed, reaches);
        if (reaches) scratch.listed[place] = static_cast<unsigned short>(block);
    }
    team.sync();
}

// Appends a block's candidates, by a warp; those for which there is no room are only counted.
__device__ inline void append_candidates(
    Scratch& scratch, int listed, const float (&logits)[PER_LANE], float bound) {
    u32 mine = 0;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) mine |= static_cast<u32>(logits[j] >= bound) << j;
    const u32 count = static_cast<u32>(__popc(mine));
    u32 place = take_places(&scratch.num_candidates, count);
    const u32 first = __shfl_sync(ALL_LANES, place, 0);
    const u32 end = __shfl_sync(ALL_LANES, place + count, LANES - 1);
    if (end > MAX_CANDIDATES) return;
    if (lane_id() == 0) scratch.found.places[listed] = first | (end - first) << 16;
    if (mine == 0) return;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        if (mine >> j & 1) scratch.found.logits[place++] = logits[j];
}

// Reads the listed blocks again, a warp each, until more than MAX_CANDIDATES are found.
template <typename TeamT, typename T>
__device__ inline void list_candidates(
    const TeamT& team, Scratch& scratch, const Row<T>& row, float bound) {
    const int count = static_cast<int>(scratch.num_listed);
#pragma unroll 1
    for (int listed = team.warp(); listed < count; listed += TeamT::WARPS) {
        float logits[PER_LANE];
        load_block(row, scratch.listed[listed], logits);
        append_candidates(scratch, listed, logits, bound);
        if (__shfl_sync(ALL_LANES, scratch.num_candidates, 0) > MAX_CANDIDATES) break;
    }
    team.sync();
}

// A candidate among all: how many are larger, and their mass.
struct Rank {
    int larger;
    u64 above;
};

__device__ inline Rank rank_of(const Candidates& found, int count, float logit) {
    Rank rank = {0, 0};
#pragma unroll 4
    for (int other = 0; other < count; ++other) {
        const bool larger = found.logits[other] > logit;
        rank.larger += larger;
        rank.above += larger ? found.weights[other] : 0;
    }
    return rank;
}

// Decides by the listed candidates, at most MAX_CANDIDATES; false if more must be known.
// `complete`: all that top-k and min-p leave is listed.
template <typename TeamT>
__device__ inline bool rank_candidates(
    const TeamT& team, Scratch& scratch, bool complete, Kept& result) {
    const Law& law = scratch.at_hand.law;
    const Filters& filters = scratch.at_hand.filters;
    const u64 row_sum = scratch.at_hand.sum;
    const bool cut = cuts_before_top_p(filters);
    const int count = static_cast<int>(scratch.num_candidates), mine = team.thread();
    const int num_warps = (count + LANES - 1) / LANES;
    const bool inside = mine < count;
    const float logit = inside ? scratch.found.logits[mine] : 0.0f;
    const u64 weight = inside ? fixed_weight(log2_weight(logit, law.max, law.scale)) : 0;
    if (inside) scratch.found.weights[mine] = weight;
    team.sync();
    const Rank rank = inside ? rank_of(scratch.found, count, logit) : Rank{0, 0};
    bool kept = inside && (filters.top_k == 0 || rank.larger < filters.top_k);
    if (filters.top_p < 1.0f) {
        // The mass before top-p is between these; what is listed decides if both agree.
        double least = static_cast<double>(row_sum), most = least;
        if (cut) {
            least = static_cast<double>(team_sum(team, scratch, kept ? weight : 0, num_warps));
            most = complete ? least : most * (1.0 + MASS_SLACK);
            team.sync();
        }
        const double above = static_cast<double>(rank.above);
        const bool perhaps = kept && above < filters.top_p * most;
        kept = kept && above < filters.top_p * least;
        const bool open = kept != perhaps || (cut && !complete && least < filters.top_p * most);
        if (__any_sync(ALL_LANES, open) && lane_id() == 0) atomicAdd(&scratch.undecided, 1u);
    }
    if (team.warp() < num_warps) {
        const u32 key = __reduce_min_sync(ALL_LANES, kept ? float_key(logit) : ~0u);
        if (lane_id() == 0) atomicMin(&scratch.threshold_key, key);
    }
    result.sum = team_sum(team, scratch, kept ? weight : 0, num_warps);
    result.threshold = key_float(scratch.threshold_key);
    return scratch.undecided == 0;
}

// Masses of what a threshold keeps, from the listed candidates. Blocks that keep nothing have none.
template <typename TeamT>
__device__ inline void store_listed_masses(
    const TeamT& team, const Scratch& scratch, int num_blocks) {
    const Law& law = scratch.at_hand.law;
    Mass* stats = scratch.at_hand.stats;
    const int count = static_cast<int>(scratch.num_listed);
#pragma unroll 1
    for (int listed = team.warp(); listed < count; listed += TeamT::WARPS) {
        const float* logits = scratch.found.logits + (scratch.found.places[listed] & 0xffff);
        const int size = static_cast<int>(scratch.found.places[listed] >> 16);
        const float max = stats[scratch.listed[listed]].max;
        u64 sum = 0;
        for (int i = lane_id(); i < size; i += LANES)
            if (logits[i] >= law.threshold)
                sum += fixed_weight(log2_weight(logits[i], max, law.scale));
        sum = warp_sum(sum);
        if (lane_id() == 0 && sum > 0) stats[scratch.listed[listed]].sum = from_fixed(sum);
    }
    team.sync();
    cut_blocks(team, stats, num_blocks, law.threshold);
}
