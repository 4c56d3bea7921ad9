// What a recipe cuts off, masses as integers, and a CTA's shared memory for finding thresholds.
#pragma once
#include "workspace.cuh"

constexpr int MAX_BLOCKS = 512;  // of a row whose blocks one warp looks through
constexpr int MAX_CANDIDATES = 128;  // that are listed and compared all with all
constexpr int NUM_BINS = 1024;
constexpr int NUM_ENDS = 2048;
constexpr int ROWS_AT_ONCE = JUDGES_OPEN_ROWS ? 2 : 4;  // that are looked through together
constexpr float FIXED_ONE = 1099511627776.0f;  // 2^40
constexpr float LEAST_LOGIT = -3.402823466e38f;
constexpr float MASS_SLACK = 1e-5f;  // of a row's mass: more than sums of floats are wrong by
constexpr float HEAVY_SLACK = 2e-3f;  // of a logarithm of weights: more than it is wrong by

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

// A row whose law is looked for among its logits. In shared memory: arguments of functions would hold
// registers while others are called.
struct OpenRow {
    Row<TargetLogit> target;
    Row<DraftLogit> draft;
    Mass* stats;
    Known known;
    int place;      // see place_of
    bool is_draft;  // which of the two it is
    bool counted;   // each logit that may be kept has a counter
    bool shared;    // by the CTAs of a request
    alignas(8) char adjustment[ADJUSTED ? sizeof(Adjustment) : 8];
};

// Bins of equal width for logits. Rounding goes the same way for all, so that a larger one is in no lower bin.
struct EqualBins {
    float scale;
    float offset;
    __device__ u32 bin_of(float logit) const {
        const float place = __fmaf_rn(logit, scale, offset);
        const float inside = fminf(fmaxf(place, 0.0f), NUM_BINS - 1.0f);
        return __float_as_uint(__fadd_rn(inside, 8388608.0f)) % NUM_BINS;  // 2^23, whose last bit is 1
    }
};

// A threshold that is looked for digit by digit: sums of bins by halves, which keys are left, and of which bin.
struct Search {
    u32 low[NUM_BINS + LANES];  // behind the last what is added in vain
    u32 high[NUM_BINS + LANES];
    u64 wanted;  // of logits or of their mass, from the keys that are left on
    u64 above;   // of it, above these keys
    u64 found;   // of it, in the bin
    u32 bin;
    u32 first;
    u32 width;
    int shift;
    bool is_equal;  // bins are of equal width
    EqualBins equal;
};

// Counters for keys of 16 bits from a row's largest down and from its bound up.
struct Ends {
    u32 high;
    u32 num_high;
    u32 low;
    u32 num_low;
    u32 counts[NUM_ENDS + 4];  // behind the last what counts in vain
};

// What a CTA shares while it filters rows.
struct Scratch {
    OpenRow rows[ROWS_AT_ONCE];
    union {
        u32 counts[ROWS_AT_ONCE][MAX_COUNTED + 4];  // behind the last what counts in vain
        Search search;
        Ends ends;
        Candidates found;
    };
    u64 sums[CTA_WARPS];  // one a warp, as the next ones
    u32 numbers[CTA_WARPS];
    u64 reached[2][CTA_WARPS];
    u32 least[2][CTA_WARPS];
    u32 threshold_key;
    u32 num_candidates;
    int num_rows;     // that are settled at once
    int next_place;   // where the next ones begin
    int num_settled;  // rows before these
    int row;          // of these, that a whole CTA looks through alone
};

template <typename T>
__device__ inline Row<T>& row_of(OpenRow& open) {
    if constexpr (SAME<T, TargetLogit>) return open.target;
    else return open.draft;
}

// By one thread.
template <typename T>
__device__ inline void set_row(
    OpenRow& open, const Row<T>& row, Mass* stats, const Filters& filters, float max,
    float sum) {
    row_of<T>(open) = row;
    if (ADJUSTED && row.adjustment) {
        Adjustment* adjustment = reinterpret_cast<Adjustment*>(open.adjustment);
        *adjustment = *row.adjustment;
        row_of<T>(open).adjustment = adjustment;
    }
    open.stats = stats;
    open.known.filters = filters;
    open.known.law = {max, -INFINITY, logit_scale(filters.temperature), 0.0f};
    open.known.sum = static_cast<u64>(sum * FIXED_ONE);
    open.known.bound = LEAST_LOGIT;
    open.is_draft = !SAME<T, TargetLogit>;
    open.shared = false;
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

__device__ inline double to_fixed(float mass) { return static_cast<double>(mass) * FIXED_ONE; }

__device__ inline float from_fixed(u64 mass) {
    return static_cast<float>(static_cast<double>(mass) / FIXED_ONE);
}

__device__ inline void set_kept(Law& law, const Kept& kept) {
    law.threshold = kept.threshold;
    law.log2_sum = log2f(from_fixed(kept.sum));
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

// The order of logits as integers without the bits that are the same for all logits of a sign.
__device__ inline u32 short_key(float logit, int idle) { return float_key(logit) >> idle; }

// Of the lowest logit that reaches a bound, which may have more bits than logits.
__device__ inline u32 lowest_short_key(float bound, int idle) {
    const u32 key = float_key(bound == 0.0f ? -0.0f : bound);
    return (key & 0x80000000u ? key + ((1u << idle) - 1) : key) >> idle;
}

__device__ inline float from_short_key(u32 key, int idle) {
    const u32 whole = key << idle;
    return key_float(whole & 0x80000000u ? whole : whole | ((1u << idle) - 1));
}

template <typename T>
constexpr int IDLE_BITS = ADJUSTED ? 0 : IDLE_KEY_BITS<T>;

// Whether every logit from the bound on has a counter of its own.
template <typename T>
__device__ inline bool is_countable(const Known& known) {
    constexpr int idle = IDLE_BITS<T>;
    return idle > 0 &&
           short_key(known.law.max, idle) - lowest_short_key(known.bound, idle) < MAX_COUNTED;
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

// The same by a CTA, known to all of it; what was stored before is visible to all then.
__device__ inline u64 cta_sum(Scratch& scratch, u64 value) {
    const u64 mine = warp_sum(value);
    if (lane_id() == 0) scratch.sums[warp_id()] = mine;
    meet_in_cta();
    const u64 sum = warp_sum(lane_id() < CTA_WARPS ? scratch.sums[lane_id()] : 0);
    meet_in_cta();
    return sum;
}
