// Where too many distinct logits can occur to count each: those that reach the bound are listed in
// shared memory, if they are few. Integers decide, so the order in which they are found cannot matter.
#pragma once
#include "bounds.cuh"

// Appends a block's candidates, by a warp; those for which there is no room are only counted.
__device__ inline void append_candidates(
    Scratch& scratch, const float (&logits)[PER_LANE], float bound) {
    u32 mine = 0;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) mine |= static_cast<u32>(logits[j] >= bound) << j;
    const u32 count = static_cast<u32>(__popc(mine));
    u32 place = take_places(&scratch.num_candidates, count);
    if (mine == 0 || place + count > MAX_CANDIDATES) return;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        if (mine >> j & 1) scratch.found.logits[place++] = logits[j];
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

__device__ inline Kept rank_candidates(Scratch& scratch, const Known& known, int count) {
    const Filters& filters = known.filters;
    const int mine = static_cast<int>(thread_id());
    const bool inside = mine < count;
    const float logit = inside ? scratch.found.logits[mine] : 0.0f;
    const u64 weight = inside ? fixed_weight(known.law, logit) : 0;
    if (inside) scratch.found.weights[mine] = weight;
    meet_in_cta();
    const Rank rank = inside ? rank_of(scratch.found, count, logit) : Rank{0, 0};
    bool kept = inside && (filters.top_k == 0 || rank.larger < filters.top_k);
    u64 whole = known.sum;
    if (cuts_before_top_p(filters)) whole = cta_sum(scratch, kept ? weight : 0);
    if (filters.top_p < 1.0f)
        kept = kept && static_cast<double>(rank.above) < filters.top_p * static_cast<double>(whole);
    const u32 key = __reduce_min_sync(ALL_LANES, kept ? float_key(logit) : ~0u);
    if (lane_id() == 0) atomicMin(&scratch.threshold_key, key);
    const u64 sum = cta_sum(scratch, kept ? weight : 0);
    return {key_float(scratch.threshold_key), sum};
}

// What the filters keep of a row becomes its bound and its mass. False if there are too many.
template <typename T>
__device__ COLD bool filter_listed(Scratch& scratch) {
    OpenRow& open = scratch.rows[scratch.row];
    if (thread_id() == 0) {
        scratch.num_candidates = 0;
        scratch.threshold_key = ~0u;
    }
    meet_in_cta();
    visit_blocks(whole_cta(), row_of<T>(open), open.stats, open.known.bound,
                 [&](int, const float(&logits)[PER_LANE]) {
                     append_candidates(scratch, logits, open.known.bound);
                 });
    meet_in_cta();
    if (scratch.num_candidates > MAX_CANDIDATES) return false;
    const Kept kept = rank_candidates(scratch, open.known, static_cast<int>(scratch.num_candidates));
    meet_in_cta();
    if (thread_id() == 0) {
        open.known.bound = kept.threshold;
        open.known.sum = kept.sum;
    }
    meet_in_cta();
    return true;
}
