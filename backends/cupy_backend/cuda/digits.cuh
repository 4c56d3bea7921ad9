// Thresholds by radix selection, where more logits than have counters can occur. Every digit of the
// threshold reads all candidates.
#pragma once
#include "candidates.cuh"
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

// Visits the logits of a row, among them all that reach its bound.
template <typename T, typename Visit>
__device__ inline void visit_logits(OpenRow& open, Visit visit) {
    visit_blocks(whole_cta(), row_of<T>(open), open.stats, open.known.bound,
                 [&](int, const float(&logits)[PER_LANE]) {
#pragma unroll
                     for (int j = 0; j < PER_LANE; ++j) visit(logits[j]);
                 });
}

// The lowest logit of a row, none larger than `max`, from its bound on with less than `target` above
// it; `weigh` gives each one's share.
template <typename T, typename Weigh>
__device__ COLD float select_by_digits(
    Scratch& scratch, OpenRow& open, float max, u64 target, Weigh weigh) {
    constexpr int idle = IDLE_BITS<T>;
    const float bound = open.known.bound;
    u64* bins = scratch.bins;
    u32 low = lowest_short_key(bound, idle);  // the threshold is here or above, by less than
    u32 width = short_key(max, idle) - low + 1;
    u64 above = 0;
    int shift = first_shift(width - 1);
#pragma unroll 1
    for (;; shift = shift > 8 ? shift - 8 : 0) {
        for (int bin = thread_id(); bin < NUM_BINS; bin += CTA_THREADS) bins[bin] = 0;
        meet_in_cta();
        visit_logits<T>(open, [&](float logit) {
            const u32 distance = short_key(logit, idle) - low;
            if (distance < width) atomicAdd(&bins[distance >> shift], weigh(logit));
        });
        meet_in_cta();
        if (warp_id() == 0) {
            const u32 bin = find_bin(bins, target, &above);
            if (lane_id() == 0) scratch.bin = bin;
        }
        meet_in_cta();
        low += scratch.bin << shift;
        width = 1u << shift;
        if (shift == 0) return from_short_key(low, idle);
    }
}

template <typename T>
__device__ inline u64 mass_from(Scratch& scratch, OpenRow& open, float floor) {
    u64 mine = 0;
    const Law law = open.known.law;
    visit_logits<T>(open, [&](float logit) {
        if (logit >= floor) mine += fixed_weight(law, logit);
    });
    return cta_sum(scratch, mine);
}

// What the filters keep of a row.
template <typename T>
__device__ COLD Kept filter_by_digits(Scratch& scratch, OpenRow& open) {
    const Law& law = open.known.law;
    const Filters& filters = open.known.filters;
    float floor = open.known.bound;
    if (filters.top_k > 0) {
        const auto one = [](float) { return static_cast<u64>(1); };
        floor = select_by_digits<T>(scratch, open, law.max, filters.top_k, one);
    }
    u64 sum = open.known.sum;
    if (cuts_before_top_p(filters)) sum = mass_from<T>(scratch, open, floor);
    if (filters.top_p < 1.0f) {
        const Law* known = &law;
        const auto weigh = [=](float logit) { return fixed_weight(*known, logit); };
        const u64 target = static_cast<u64>(ceil(filters.top_p * static_cast<double>(sum)));
        const float last = select_by_digits<T>(scratch, open, law.max, target, weigh);
        floor = fmaxf(floor, last);
        sum = mass_from<T>(scratch, open, floor);
    }
    return {floor, sum};
}
