// What a recipe cuts off, masses as integers, and a CTA's shared memory for finding thresholds.
#pragma once
#include "workspace.cuh"

constexpr int MAX_BLOCKS = 512;  // of a row whose blocks one warp looks through
constexpr int MAX_CANDIDATES = 128;  // that are listed and compared all with all
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

struct Candidates {
    float logits[MAX_CANDIDATES];
    u64 weights[MAX_CANDIDATES];
};

// What decides about a row besides its logits.
struct Known {
    Filters filters;
    Law law;
    u64 sum;      // the row's mass
    float bound;  // what is kept is not below
};

// The row that a CTA filters, and what is known of it. Functions that are not inlined find it in
// shared memory: arguments would hold registers while others are called.
struct RowAtHand {
    Row<TargetLogit> target;
    Row<DraftLogit> draft;
    Mass* stats;
    Known known;
    alignas(8) char adjustment[ADJUSTED ? sizeof(Adjustment) : 8];
};

// What a CTA shares while it filters a row.
struct Scratch {
    RowAtHand at_hand;
    union {
        float amounts[CTA_WARPS][LANES];
        u32 counts[MAX_COUNTED + 1];  // the last one counts in vain
        u64 bins[NUM_BINS];
        Candidates found;
    };
    u64 sums[CTA_WARPS];  // one a warp, as the next
    u32 numbers[CTA_WARPS];
    u32 num_candidates;
    u32 threshold_key;
    u32 bin;
    Known counted[MAX_SHARED_ROWS];
    int places[MAX_SHARED_ROWS];
    int num_counted;
};

template <typename T>
__device__ inline const Row<T>& row_of(const Scratch& scratch) {
    if constexpr (SAME<T, TargetLogit>) return scratch.at_hand.target;
    else return scratch.at_hand.draft;
}

// By one thread, between barriers.
template <typename T>
__device__ inline void set_row(
    Scratch& scratch, const Row<T>& row, const Mass* stats, const Filters& filters, float max) {
    RowAtHand& at = scratch.at_hand;
    Row<T>& known = const_cast<Row<T>&>(row_of<T>(scratch));
    known = row;
    if (ADJUSTED && row.adjustment) {
        Adjustment* adjustment = reinterpret_cast<Adjustment*>(at.adjustment);
        *adjustment = *row.adjustment;
        known.adjustment = adjustment;
    }
    at.stats = const_cast<Mass*>(stats);
    at.known = {filters, {max, -INFINITY, logit_scale(filters.temperature), 0.0f}, 0, LEAST_LOGIT};
    scratch.num_candidates = 0;
    scratch.threshold_key = ~0u;
}

__device__ inline bool cuts_before_top_p(const Filters& filters) {
    return filters.top_k > 0 || filters.min_p > 0.0f;
}

// 2^log2_weight as an integer: addition of these has no order.
__device__ inline u64 fixed_weight(float log2_weight) {
    return static_cast<u64>(exp2_fast(log2_weight) * FIXED_ONE);
}

__device__ inline u64 fixed_weight(const Law& law, float logit) {
    return fixed_weight(log2_weight(logit, law.max, law.scale));
}

__device__ inline float from_fixed(u64 mass) {
    return static_cast<float>(static_cast<double>(mass) / FIXED_ONE);
}

__device__ inline Filters filters_of(const Recipe& recipe, i64 request, i64 vocab_size) {
    const int top_k = recipe.top_k[request];
    return {recipe.temperature[request], recipe.min_p[request], top_k < vocab_size ? top_k : 0,
            recipe.top_p[request]};
}

__device__ inline bool has_filters(const Filters& filters) {
    return filters.temperature > 0.0f &&
           (filters.min_p > 0.0f || filters.top_k > 0 || filters.top_p < 1.0f);
}

// How far below a row's largest logit min-p keeps something.
__device__ COLD double log_of_min_p(float min_p) { return log(static_cast<double>(min_p)); }

__device__ inline double reach_of_min_p(const Filters& filters) {
    if (filters.min_p == 0.0f) return -INFINITY;
    return static_cast<double>(filters.temperature) * log_of_min_p(filters.min_p);
}

// Below which logit nothing is kept.
__device__ inline float floor_of_min_p(double reach, float max) {
    return fmaxf(__double2float_ru(max + reach), LEAST_LOGIT);
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

// Of values below 2^58, by a whole warp.
__device__ inline u64 warp_sum(u64 value) {
    constexpr u32 low_bits = (1u << 22) - 1;
    const u64 low = __reduce_add_sync(ALL_LANES, static_cast<u32>(value) & low_bits);
    const u64 middle = __reduce_add_sync(ALL_LANES, static_cast<u32>(value >> 22) & low_bits);
    const u64 high = __reduce_add_sync(ALL_LANES, static_cast<u32>(value >> 44));
    return low + (middle << 22) + (high << 44);
}

// The same by a CTA, known to all of it. Two of these need a barrier between.
__device__ inline u64 cta_sum(Scratch& scratch, u64 value) {
    const u64 mine = warp_sum(value);
    if (lane_id() == 0) scratch.sums[warp_id()] = mine;
    __syncthreads();
    u64 sum = 0;
    for (int warp = 0; warp < CTA_WARPS; ++warp) sum += scratch.sums[warp];
    return sum;
}
