// What a recipe cuts off, masses as integers, and one team's shared memory for finding thresholds.
#pragma once
#include "statistics.cuh"

constexpr int MAX_BLOCKS = 512;  // of a row whose blocks are looked through for bounds
constexpr int MAX_CANDIDATES = 128;  // that are listed and compared all with all
constexpr int MAX_WARPS = 16;    // of a team
constexpr int MAX_COUNTED = 2048;  // distinct logits that are counted
constexpr int NUM_BINS = 256;
constexpr float FIXED_ONE = 1099511627776.0f;  // 2^40
constexpr float LEAST_LOGIT = -3.402823466e38f;
constexpr float MASS_SLACK = 1e-5f;  // of a row's mass: more than sums of floats are wrong by

// What one row's recipe says.
struct Filters {
    float temperature;
    float min_p;  // 0: off
    int top_k;    // 0: off
    float top_p;  // 1: off
};

// What filters keep: logits from a threshold on, and their mass relative to the row's largest.
struct Kept {
    float threshold;
    u64 sum;
};

// What one warp finds out about a row.
struct PeakedRow {
    Kept kept;
    float max;
    bool is_decided;
};

// A block that may matter to top-p's bound: its mass and its largest logit's.
struct HeavyBlock {
    float mass;
    float peak;
};

struct Bounding {
    HeavyBlock heavy[MAX_BLOCKS];
    float amounts[MAX_WARPS][LANES];
};

struct Candidates {
    float logits[MAX_CANDIDATES];
    u32 places[MAX_BLOCKS];  // where a listed block's candidates start, and how many << 16
    union {
        u64 weights[MAX_CANDIDATES];
        u64 bins[NUM_BINS];
        u32 counts[MAX_COUNTED + LANES];
    };
};

// The row that a team filters, and what is known of it. Functions that are not inlined find it in
// shared memory: arguments would hold registers while others are called.
struct RowAtHand {
    Row<TargetLogit> target;
    Row<DraftLogit> draft;
    Mass* stats;
    Filters filters;
    Law law;
    u64 sum;      // the row's mass
    float bound;  // what is kept is not below
    Kept kept;
    alignas(8) char adjustment[ADJUSTED ? sizeof(Adjustment) : 8];
};

// What a team shares while it filters a row.
struct Scratch {
    RowAtHand at_hand;
    unsigned short listed[MAX_BLOCKS];
    union {
        Bounding bounding;
        Candidates found;
    };
    u64 sums[MAX_WARPS];  // one a warp, as the next
    u32 numbers[MAX_WARPS];
    u32 max_key;
    u32 num_heavy;
    u32 num_listed;
    u32 num_candidates;
    u32 threshold_key;
    u32 undecided;
    u32 bin;
    PeakedRow peaked;
};

template <typename T>
__device__ inline const Row<T>& row_of(const Scratch& scratch) {
    if constexpr (SAME<T, TargetLogit>) return scratch.at_hand.target;
    else return scratch.at_hand.draft;
}

// By one thread, between barriers.
template <typename T>
__device__ inline void set_row(
    Scratch& scratch, const Row<T>& row, Mass* stats, const Filters& filters) {
    RowAtHand& at = scratch.at_hand;
    Row<T>& known = const_cast<Row<T>&>(row_of<T>(scratch));
    known = row;
    if (ADJUSTED && row.adjustment) {
        Adjustment* adjustment = reinterpret_cast<Adjustment*>(at.adjustment);
        *adjustment = *row.adjustment;
        known.adjustment = adjustment;
    }
    at.stats = stats;
    at.filters = filters;
    if (filters.top_k >= row.vocab_size) at.filters.top_k = 0;
    at.law = {-INFINITY, -INFINITY, logit_scale(filters.temperature), 0.0f};
}

__device__ inline bool cuts_before_top_p(const Filters& filters) {
    return filters.top_k > 0 || filters.min_p > 0.0f;
}

// 2^log2_weight as an integer: addition of these has no order.
__device__ inline u64 fixed_weight(float log2_weight) {
    return static_cast<u64>(exp2_fast(log2_weight) * FIXED_ONE);
}

__device__ inline float from_fixed(u64 mass) {
    return static_cast<float>(static_cast<double>(mass) / FIXED_ONE);
}

__device__ inline Filters filters_of(const Recipe& recipe, i64 request) {
    return {recipe.temperature[request], recipe.min_p[request], recipe.top_k[request],
            recipe.top_p[request]};
}

__device__ inline bool has_filters(const Filters& filters, i64 vocab_size) {
    const bool by_rank = filters.top_k > 0 && filters.top_k < vocab_size;
    return filters.min_p > 0.0f || by_rank || filters.top_p < 1.0f;
}

// Below which logit min-p keeps nothing.
__device__ COLD float floor_of_min_p(float min_p, float temperature, float max) {
    const double log_min_p = log(static_cast<double>(min_p));
    const double exact = max + static_cast<double>(temperature) * log_min_p;
    return fmaxf(__double2float_ru(exact), LEAST_LOGIT);
}

__device__ inline float bound_of_min_p(const Filters& filters, float max) {
    if (filters.min_p == 0.0f) return LEAST_LOGIT;
    return floor_of_min_p(filters.min_p, filters.temperature, max);
}

// A lane's places in a shared list: `count` of them from the returned one on. By a whole warp.
__device__ inline u32 take_places(u32* length, u32 count) {
    u32 end = count;
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u32 before = __shfl_up_sync(ALL_LANES, end, distance);
        if (lane_id() >= distance) end += before;
    }
    u32 first = 0;
    if (lane_id() == LANES - 1) first = atomicAdd(length, end);
    return __shfl_sync(ALL_LANES, first, LANES - 1) + end - count;
}

// The same for lanes that want one place or none.
__device__ inline u32 take_place(u32* length, bool wanted) {
    const u32 takers = __ballot_sync(ALL_LANES, wanted);
    if (takers == 0) return 0;
    u32 first = 0;
    if (lane_id() == 0) first = atomicAdd(length, static_cast<u32>(__popc(takers)));
    return __shfl_sync(ALL_LANES, first, 0) + __popc(takers & ((1u << lane_id()) - 1));
}

// Of values below 2^58, by a whole warp.
__device__ inline u64 warp_sum(u64 value) {
    constexpr u32 low_bits = (1u << 22) - 1;
    const u64 low = __reduce_add_sync(ALL_LANES, static_cast<u32>(value) & low_bits);
    const u64 middle = __reduce_add_sync(ALL_LANES, static_cast<u32>(value >> 22) & low_bits);
    const u64 high = __reduce_add_sync(ALL_LANES, static_cast<u32>(value >> 44));
    return low + (middle << 22) + (high << 44);
}

// The same by the first warps of a team, known to all of it. Two of these need a barrier between.
template <typename TeamT>
__device__ inline u64 team_sum(const TeamT& team, Scratch& scratch, u64 value, int num_warps) {
    const u64 mine = team.warp() < num_warps ? warp_sum(value) : 0;
    if (lane_id() == 0 && team.warp() < num_warps) scratch.sums[team.warp()] = mine;
    team.sync();
    u64 sum = 0;
    for (int warp = 0; warp < num_warps; ++warp) sum += scratch.sums[warp];
    return sum;
}
