// Thresholds by radix selection, where more logits than have counters can occur. Every digit of the
// threshold reads all candidates; the first is one of bins of equal width, for where rows are flat, most keys of
// floats are those of numbers near 0.
#pragma once
#include "candidates.cuh"
#include "counts.cuh"

constexpr int BINS_A_LANE = NUM_BINS / LANES;
constexpr int BITS_A_DIGIT = 10;
constexpr int SEARCHED_AT_ONCE = 4;  // logits of a lane
static_assert(1 << BITS_A_DIGIT == NUM_BINS && BINS_A_LANE == LANES);

__device__ inline u64 sum_in(const Search& search, int bin) {
    return static_cast<u64>(search.high[bin]) << 32 | search.low[bin];
}

// What the lanes before this one have together.
__device__ inline u64 sum_before(u64 mine) {
    u64 end = mine;
#pragma unroll 1
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u64 other = __shfl_up_sync(ALL_LANES, end, distance);
        if (lane_id() >= distance) end += other;
    }
    return end - mine;
}

// The last lane that has something, and less than what is wanted before it.
__device__ inline int last_wanted(u64 mine, u64 before, u64 wanted) {
    return LANES - 1 - __clz(static_cast<int>(__ballot_sync(ALL_LANES, mine > 0 && before < wanted)));
}

// The lowest bin that holds something and has less than what is wanted above it. By one warp; what is wanted
// shrinks by what lies above that bin.
__device__ inline void find_bin(Search& search) {
    const u64 wanted = search.wanted;
    const int top = NUM_BINS - 1 - lane_id() * BINS_A_LANE;
    u64 mine = 0;
#pragma unroll 4
    for (int i = 0; i < BINS_A_LANE; ++i) mine += sum_in(search, top - (i ^ lane_id()));
    const u64 before = sum_before(mine);
    const int lane = last_wanted(mine, before, wanted);
    const int bin = NUM_BINS - 1 - lane * BINS_A_LANE - lane_id();
    mine = sum_in(search, bin);
    const u64 above = __shfl_sync(ALL_LANES, before, lane) + sum_before(mine);
    const int chosen = last_wanted(mine, above, wanted);
    __syncwarp();  // all lanes have read what is wanted
    if (lane_id() == chosen) {
        search.bin = static_cast<u32>(bin);
        search.wanted = wanted - above;
        search.above += above;
        search.found = mine;
    }
    __syncwarp();
}

// The first key that is searched whose logit is in a bin or above it; behind the last if there is none.
__device__ inline u32 first_key_from(const Search& search, u32 bin, int idle) {
    u32 low = search.first, high = search.first + search.width;
#pragma unroll 1
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        const bool reaches = search.equal.bin_of(from_short_key(middle, idle)) >= bin;
        low = reaches ? low : middle + 1;
        high = reaches ? middle : high;
    }
    return low;
}

// Keys of the bin that was found are searched next. By one warp.
__device__ inline void narrow_search(Search& search, int idle) {
    const u32 before = search.bin << search.shift, left = search.width - before;
    u32 first = search.first + before, width = left < 1u << search.shift ? left : 1u << search.shift;
    if (search.is_equal) {
        first = first_key_from(search, search.bin + lane_id() % 2, idle);
        width = __shfl_sync(ALL_LANES, first, 1) - first;
    }
    __syncwarp();
    if (lane_id() > 0) return;
    const int bits = LANES - __clz(static_cast<int>(width - 1));
    search.first = first;
    search.width = width;
    search.shift = bits > BITS_A_DIGIT ? bits - BITS_A_DIGIT : 0;
    search.is_equal = false;
}

// Bins of equal width reach from the row's bound, or as far below the smallest of its blocks' largest logits as
// three times that is below the largest: few logits are lower. By one warp.
template <typename T>
__device__ inline void begin_search(Scratch& scratch, float max, u64 wanted) {
    OpenRow& open = scratch.rows[scratch.row];
    float least = max, largest = -INFINITY;
#pragma unroll 2
    for (int block = lane_id(); block < row_of<T>(open).num_blocks(); block += LANES) {
        const float here = open.stats[block].max;
        largest = fmaxf(largest, here);
        if (here > -INFINITY) least = fminf(least, here);
    }
    least = -warp_max(-least);
    largest = warp_max(largest);
    if (lane_id() > 0) return;
    const float bound = open.known.bound;
    const u32 first = lowest_short_key(bound, IDLE_BITS<T>);
    Search& search = scratch.search;
    const float origin = fmaxf(bound, least - 3.0f * (largest - least));
    const float scale = (NUM_BINS - 1) / (largest - origin);
    search.equal = {scale, -origin * scale};
    search.first = first;  // the threshold is here or above, by less than the width
    search.width = short_key(__fadd_rn(max, 0.0f), IDLE_BITS<T>) - first + 1;
    search.shift = 0;
    search.is_equal = true;
    search.wanted = wanted;
    search.above = 0;
}

// Visits the logits of the row at hand, among them all that reach its bound, a few of a lane at once. Little of it
// is unrolled: what is done with a logit takes registers that callers need, and code.
template <typename T, typename Visit>
__device__ inline void visit_logits(Scratch& scratch, Visit visit) {
    OpenRow& open = scratch.rows[scratch.row];
    visit_blocks(whole_cta(), row_of<T>(open), open.stats, open.known.bound,
                 [&](int, float(&logits)[PER_LANE]) {
#pragma unroll 1
                     for (int turn = 0; turn < PER_LANE; turn += SEARCHED_AT_ONCE) {
                         visit(logits);
#pragma unroll
                         for (int j = SEARCHED_AT_ONCE; j < PER_LANE; ++j)
                             logits[j - SEARCHED_AT_ONCE] = logits[j];
                     }
                 });
}

// A few logits of a lane, by the bin that each is in and what it adds there. Sums have halves, for shared memory
// adds no more than a word at once; little changes the upper ones.
struct Shares {
    u32 bins[SEARCHED_AT_ONCE];
    u64 amounts[SEARCHED_AT_ONCE];
    __device__ void add_to(Search& search) const {
        u32 upper[SEARCHED_AT_ONCE], some = 0;
#pragma unroll
        for (int j = 0; j < SEARCHED_AT_ONCE; ++j) {
            const u32 lower = static_cast<u32>(amounts[j]);
            upper[j] = atomicAdd(&search.low[bins[j]], lower);
        }
#pragma unroll
        for (int j = 0; j < SEARCHED_AT_ONCE; ++j) {
            const bool carries = upper[j] + static_cast<u32>(amounts[j]) < upper[j];
            upper[j] = static_cast<u32>(amounts[j] >> 32) + carries;
            some |= upper[j];
        }
        if (some == 0) return;
#pragma unroll
        for (int j = 0; j < SEARCHED_AT_ONCE; ++j) atomicAdd(&search.high[bins[j]], upper[j]);
    }
};

// Where what is not searched is added in vain, which costs less than a branch: another place for each lane.
__device__ inline u32 bin_in_vain() { return NUM_BINS + lane_id(); }

// Adds all logits that reach the bound to bins of equal width: one each or what they weigh.
template <typename T>
__device__ inline void add_to_equal_bins(Scratch& scratch, bool by_number) {
    const Law& law = scratch.rows[scratch.row].known.law;
    const float bound = scratch.rows[scratch.row].known.bound;
    const EqualBins equal = scratch.search.equal;
    const u32 in_vain = bin_in_vain();
    visit_logits<T>(scratch, [&](const float(&logits)[PER_LANE]) {
        Shares shares;
#pragma unroll
        for (int j = 0; j < SEARCHED_AT_ONCE; ++j) {
            shares.amounts[j] = by_number ? 1 : fixed_weight(law, logits[j]);
            shares.bins[j] = logits[j] >= bound ? equal.bin_of(logits[j]) : in_vain;
        }
        shares.add_to(scratch.search);
    });
}

// Adds those whose keys are left, -0 passing for 0, to bins of equally many keys. Few are.
template <typename T>
__device__ inline void add_to_bins_of_keys(Scratch& scratch, bool by_number) {
    constexpr int idle = IDLE_BITS<T>;
    const u32 first = scratch.search.first, width = scratch.search.width;
    visit_logits<T>(scratch, [&](const float(&logits)[PER_LANE]) {
        u32 nearest = ~0u;
        Shares shares;
#pragma unroll
        for (int j = 0; j < SEARCHED_AT_ONCE; ++j) {
            shares.bins[j] = short_key(__fadd_rn(logits[j], 0.0f), idle) - first;
            nearest = shares.bins[j] < nearest ? shares.bins[j] : nearest;
        }
        if (nearest >= width) return;
        const Law& law = scratch.rows[scratch.row].known.law;
#pragma unroll
        for (int j = 0; j < SEARCHED_AT_ONCE; ++j) {
            shares.amounts[j] = by_number ? 1 : fixed_weight(law, logits[j]);
            shares.bins[j] = shares.bins[j] < width ? shares.bins[j] >> scratch.search.shift : bin_in_vain();
        }
        shares.add_to(scratch.search);
    });
}

// The lowest logit of the row, none larger than `max`, from its bound on with less than `target` above it: so
// many logits or such a mass.
template <typename T>
__device__ COLD float select_by_digits(Scratch& scratch, float max, u64 target, bool by_number) {
    Search& search = scratch.search;
    if (warp_id() == 0) begin_search<T>(scratch, max, target);
#pragma unroll 1
    do {
        for (int bin = thread_id(); bin < NUM_BINS; bin += CTA_THREADS)
            search.low[bin] = search.high[bin] = 0;
        meet_in_cta();
        if (search.is_equal)
            add_to_equal_bins<T>(scratch, by_number);
        else
            add_to_bins_of_keys<T>(scratch, by_number);
        meet_in_cta();
        if (warp_id() == 0) {
            find_bin(search);
            narrow_search(search, IDLE_BITS<T>);
        }
        meet_in_cta();
    } while (search.width > 1);
    return from_short_key(search.first, IDLE_BITS<T>);
}

template <typename T>
__device__ inline u64 mass_from(Scratch& scratch, float floor) {
    const Law& law = scratch.rows[scratch.row].known.law;
    u64 mine = 0;
    visit_logits<T>(scratch, [&](const float(&logits)[PER_LANE]) {
#pragma unroll
        for (int j = 0; j < SEARCHED_AT_ONCE; ++j)
            mine += logits[j] >= floor ? fixed_weight(law, logits[j]) : 0;
    });
    return cta_sum(scratch, mine);
}

// What the filters keep of the row becomes its bound and its mass: first by top-k and min-p, then by top-p.
template <typename T>
__device__ inline void filter_by_digits(Scratch& scratch) {
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
        const bool by_number = turn == 0;
        Known& known = scratch.rows[scratch.row].known;
        const Filters& filters = known.filters;
        float floor = known.bound;
        if (by_number ? filters.top_k > 0 : filters.top_p < 1.0f) {
            const double share = ceil(filters.top_p * static_cast<double>(known.sum));
            const u64 target = by_number ? filters.top_k : static_cast<u64>(share);
            floor = select_by_digits<T>(scratch, known.law.max, target, by_number);
        } else if (!by_number || filters.min_p == 0.0f) {
            continue;
        }
        const u64 sum = by_number ? mass_from<T>(scratch, floor)
                                  : scratch.search.above + scratch.search.found;
        if (thread_id() == 0) {
            known.bound = floor;
            known.sum = sum;
        }
        meet_in_cta();
    }
}
