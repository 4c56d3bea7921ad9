// Thresholds where few distinct logits can occur between a bound and the largest, as among 16-bit
// ones: each has a counter, and one reading of the candidates tells everything.
#pragma once
#include "candidates.cuh"

// A row's logits, among them all that may be kept, which are those from `bound` on.
template <typename T>
struct Survivors {
    const Row<T>& row;
    Mass* const& stats;
    const float& bound;
    template <typename TeamT, typename Visit>
    __device__ void each(const TeamT& team, Visit visit) const {
        visit_blocks(team, row, stats, bound, [&](int, const float(&logits)[PER_LANE]) {
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j) visit(logits[j]);
        });
    }
};

template <typename T>
__device__ inline Survivors<T> survivors_of(const Scratch& scratch) {
    return {row_of<T>(scratch), scratch.at_hand.stats, scratch.at_hand.bound};
}

// The order of logits as integers without the bits that are the same for all logits of a sign.
__device__ inline u32 short_key(float logit, int idle) { return float_key(logit) >> idle; }

// Of the lowest logit that reaches a bound, which may have more bits than logits.
__device__ inline u32 lowest_short_key(float bound, int idle) {
    const u32 key = float_key(bound);
    return (key & 0x80000000u ? key + ((1u << idle) - 1) : key) >> idle;
}

__device__ inline float from_short_key(u32 key, int idle) {
    const u32 whole = key << idle;
    return key_float(whole & 0x80000000u ? whole : whole | ((1u << idle) - 1));
}

__device__ inline bool are_countable(float bound, float max, int idle) {
    return short_key(max, idle) - lowest_short_key(bound, idle) < MAX_COUNTED;
}

// How many logits are larger than those of a counter, and their mass.
struct Above {
    u32 number;
    u64 mass;
};

// The counters of one thread: `each` visits them from the largest logit on, as (key, number of
// logits, the mass of one).
template <typename TeamT>
struct Counters {
    static constexpr int PER_THREAD = MAX_COUNTED / TeamT::THREADS;
    const u32* counts;
    u32 low;  // key of the first counter
    u32 top;  // and of this thread's last
    int idle;
    float max;
    float scale;
    template <typename Visit>
    __device__ void each(Visit visit) const {
        for (u32 i = 0; i < PER_THREAD; ++i) {
            const u32 key = top - i, number = counts[key - low];
            if (number == 0) continue;
            visit(key, number, fixed_weight(log2_weight(from_short_key(key, idle), max, scale)));
        }
    }
};

// What lies above a thread's counters: exclusive prefix sums over a team.
template <typename TeamT>
__device__ inline Above above_counters(
    const TeamT& team, Scratch& scratch, const Counters<TeamT>& counters) {
    Above mine = {0, 0};
    counters.each([&](u32, u32 number, u64 weight) {
        mine.number += number;
        mine.mass += number * weight;
    });
    Above end = mine;
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u32 number = __shfl_up_sync(ALL_LANES, end.number, distance);
        const u64 mass = __shfl_up_sync(ALL_LANES, end.mass, distance);
        if (lane_id() >= distance) end = {end.number + number, end.mass + mass};
    }
    if (lane_id() == LANES - 1) {
        scratch.sums[team.warp()] = end.mass;
        scratch.numbers[team.warp()] = end.number;
    }
    team.sync();
    for (int warp = 0; warp < team.warp(); ++warp) {
        end.mass += scratch.sums[warp];
        end.number += scratch.numbers[warp];
    }
    team.sync();
    return {end.number - mine.number, end.mass - mine.mass};
}

// Visits what top-k keeps of a thread's counters as (key, mass above, mass).
template <typename TeamT, typename Visit>
__device__ inline void each_in_top_k(
    const Counters<TeamT>& counters, Above above, int top_k, Visit visit) {
    counters.each([&](u32 key, u32 number, u64 weight) {
        const u64 mass = number * weight;
        if (top_k == 0 || above.number < static_cast<u32>(top_k)) visit(key, above.mass, mass);
        above.number += number;
        above.mass += mass;
    });
}

// What the filters keep of countable logits, among which are all that top-k and min-p leave.
template <typename TeamT, typename T>
__device__ COLD Kept filter_by_counts(Scratch& scratch) {
    constexpr int idle = ADJUSTED ? 0 : IDLE_KEY_BITS<T>;
    const TeamT team = my_team<TeamT>();
    const Survivors<T> logits = survivors_of<T>(scratch);
    const Law& law = scratch.at_hand.law;
    const Filters& filters = scratch.at_hand.filters;
    u32* counts = scratch.found.counts;
    const u32 low = lowest_short_key(logits.bound, idle);
    for (int i = team.thread(); i < MAX_COUNTED; i += TeamT::THREADS) counts[i] = 0;
    team.sync();
    // What is below the bound is counted too, in vain: that is cheaper than to branch.
    const u32 vain = MAX_COUNTED + lane_id();
    logits.each(team, [&](float logit) {
        const u32 place = short_key(logit, idle) - low;
        atomicAdd(&counts[place < vain ? place : vain], 1u);
    });
    team.sync();
    const u32 top = low + MAX_COUNTED - 1 - team.thread() * Counters<TeamT>::PER_THREAD;
    const Counters<TeamT> counters = {counts, low, top, idle, law.max, law.scale};
    const Above above = above_counters(team, scratch, counters);
    u64 whole = scratch.at_hand.sum;
    if (cuts_before_top_p(filters)) {
        u64 mine = 0;
        each_in_top_k(counters, above, filters.top_k, [&](u32, u64, u64 mass) { mine += mass; });
        whole = team_sum(team, scratch, mine, TeamT::WARPS);
        team.sync();
    }
    const double wanted = filters.top_p * static_cast<double>(whole);
    u32 least = ~0u;
    u64 sum = 0;
    each_in_top_k(counters, above, filters.top_k, [&](u32 key, u64 larger, u64 mass) {
        if (filters.top_p < 1.0f && !(static_cast<double>(larger) < wanted)) return;
        least = key;
        sum += mass;
    });
    least = __reduce_min_sync(ALL_LANES, least);
    if (lane_id() == 0) atomicMin(&scratch.threshold_key, least);
    sum = team_sum(team, scratch, sum, TeamT::WARPS);
    return {from_short_key(scratch.threshold_key, idle), sum};
}
