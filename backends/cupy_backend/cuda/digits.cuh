// Thresholds by radix selection, where more logits than have counters can occur. Every digit of the
// threshold reads all candidates.
#pragma once
#include "counts.cuh"

// The lowest bin that holds something and has less than `target` above it. By one warp; `above`
// grows by what lies above that bin.
__device__ inline u32 find_bin(const u64* bins, u64 target, u64* above) {
    constexpr int per_lane = NUM_BINS / LANES;
    const int top = NUM_BINS - 1 - lane_id() * per_lane;
    u64 mine = 0;
    for (int i = 0; i < per_lane; ++i) mine += bins[top - i];
    u64 before = mine;
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u64 other = __shfl_up_sync(ALL_LANES, before, distance);
        if (lane_id() >= distance) before += other;
    }
    before += *above - mine;
    u64 found = ~0ull, found_above = 0;
    for (int i = 0; i < per_lane; ++i) {
        const u64 here = bins[top - i];
        if (here > 0 && before < target) {
            found = top - i;
            found_above = before;
        }
        before += here;
    }
    const u32 lanes = __ballot_sync(ALL_LANES, found != ~0ull);
    const int last = LANES - 1 - __clz(static_cast<int>(lanes));
    *above = __shfl_sync(ALL_LANES, found_above, last);
    return static_cast<u32>(__shfl_sync(ALL_LANES, found, last));
}

// How far the first digit of numbers up to `span` is shifted.
__device__ inline int first_shift(u32 span) {
    const int bits = LANES - __clz(static_cast<int>(span));
    return bits > 8 ? bits - 8 : 0;
}

// The lowest of these logits, none larger than `max`, with less than `target` above it; `weigh` gives
// each one's share.
template <typename TeamT, typename T, typename Weigh>
__device__ COLD float select_by_digits(Scratch& scratch, float max, u64 target, Weigh weigh) {
    constexpr int idle = ADJUSTED ? 0 : IDLE_KEY_BITS<T>;
    const TeamT team = my_team<TeamT>();
    const Survivors<T> logits = survivors_of<T>(scratch);
    u64* bins = scratch.found.bins;
    u32 low = lowest_short_key(logits.bound, idle);  // the threshold is here or above, by less than
    u32 width = short_key(max, idle) - low + 1;
    u64 above = 0;
    int shift = first_shift(width - 1);
#pragma unroll 1
    for (;; shift = shift > 8 ? shift - 8 : 0) {
        for (int bin = team.thread(); bin < NUM_BINS; bin += TeamT::THREADS) bins[bin] = 0;
        team.sync();
        logits.each(team, [&](float logit) {
            const u32 distance = short_key(logit, idle) - low;
            if (distance < width) atomicAdd(&bins[distance >> shift], weigh(logit));
        });
        team.sync();
        if (team.warp() == 0) {
            const u32 bin = find_bin(bins, target, &above);
            if (lane_id() == 0) scratch.bin = bin;
        }
        team.sync();
        low += scratch.bin << shift;
        width = 1u << shift;
        if (shift == 0) return from_short_key(low, idle);
    }
}

template <typename TeamT, typename T>
__device__ inline u64 mass_from(
    const TeamT& team, Scratch& scratch, const Survivors<T>& logits, const Law& law, float floor) {
    u64 mine = 0;
    logits.each(team, [&](float logit) {
        if (logit >= floor) mine += fixed_weight(log2_weight(logit, law.max, law.scale));
    });
    const u64 sum = team_sum(team, scratch, mine, TeamT::WARPS);
    team.sync();
    return sum;
}

// As filter_by_counts.
template <typename TeamT, typename T>
__device__ COLD Kept filter_by_digits(Scratch& scratch) {
    const TeamT team = my_team<TeamT>();
    const Survivors<T> logits = survivors_of<T>(scratch);
    const Law& law = scratch.at_hand.law;
    const Filters& filters = scratch.at_hand.filters;
    float floor = logits.bound;
    if (filters.top_k > 0) {
        const auto one = [](float) { return static_cast<u64>(1); };
        floor = select_by_digits<TeamT, T>(scratch, law.max, filters.top_k, one);
    }
    u64 sum = scratch.at_hand.sum;
    if (cuts_before_top_p(filters)) sum = mass_from(team, scratch, logits, law, floor);
    if (filters.top_p < 1.0f) {
        const Law* known = &law;
        const auto weigh = [=](float logit) {
            return fixed_weight(log2_weight(logit, known->max, known->scale));
        };
        const u64 target = static_cast<u64>(ceil(filters.top_p * static_cast<double>(sum)));
        const float last = select_by_digits<TeamT, T>(scratch, law.max, target, weigh);
        floor = fmaxf(floor, last);
        sum = mass_from(team, scratch, logits, law, floor);
    }
    return {floor, sum};
}
