// Thresholds by radix selection, where more logits than have counters can occur. Every digit of the
// threshold reads all candidates.
#pragma once
#include "candidates.cuh"
#include "counts.cuh"

// The lowest bin that holds something and has less than what is wanted above it. By one warp; what is wanted
// shrinks by what lies above that bin.
__device__ inline void find_bin(Scratch& scratch) {
    constexpr int per_lane = NUM_BINS / LANES;
    const u64* bins = scratch.bins;
    const int top = NUM_BINS - 1 - lane_id() * per_lane;
    u64 mine = 0;
    for (int i = 0; i < per_lane; ++i) mine += bins[top - i];
    u64 before = mine;
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u64 other = __shfl_up_sync(ALL_LANES, before, distance);
        if (lane_id() >= distance) before += other;
    }
    before -= mine;
    const u64 target = scratch.wanted;
    u64 found_above = 0;
    u32 found = ~0u;
    for (int i = 0; i < per_lane; ++i) {
        const u64 here = bins[top - i];
        if (here > 0 && before < target) {
            found = static_cast<u32>(top - i);
            found_above = before;
        }
        before += here;
    }
    const u32 lanes = __ballot_sync(ALL_LANES, found != ~0u);
    __syncwarp();  // all lanes have read what is wanted
    if (lane_id() != LANES - 1 - __clz(static_cast<int>(lanes))) return;
    scratch.bin = found;
    scratch.wanted = target - found_above;
}

// How far the first digit of numbers up to `span` is shifted.
__device__ inline int first_shift(u32 span) {
    const int bits = LANES - __clz(static_cast<int>(span));
    return bits > 8 ? bits - 8 : 0;
}

// Visits the logits of the row at hand, among them all that reach its bound. Little of it is unrolled: what is
// done with a logit takes registers that callers need, and code.
template <typename T, typename Visit>
__device__ inline void visit_logits(Scratch& scratch, Visit visit) {
    OpenRow& open = scratch.rows[scratch.row];
    visit_blocks(whole_cta(), row_of<T>(open), open.stats, open.known.bound,
                 [&](int, float(&logits)[PER_LANE]) {
                     constexpr int at_once = 4;
#pragma unroll 1
                     for (int turn = 0; turn < PER_LANE; turn += at_once) {
#pragma unroll
                         for (int j = 0; j < at_once; ++j) visit(logits[j]);
#pragma unroll
                         for (int j = at_once; j < PER_LANE; ++j) logits[j - at_once] = logits[j];
                     }
                 });
}

// The lowest logit of the row, none larger than `max`, from its bound on with less than `target` above it: so
// many logits or such a mass.
template <typename T>
__device__ COLD float select_by_digits(Scratch& scratch, float max, u64 target, bool by_number) {
    constexpr int idle = IDLE_BITS<T>;
    const Known& known = scratch.rows[scratch.row].known;
    u32 low = lowest_short_key(known.bound, idle);  // the threshold is here or above, by less than
    u32 width = short_key(max, idle) - low + 1;
    int shift = first_shift(width - 1);
    if (thread_id() == 0) scratch.wanted = target;
#pragma unroll 1
    for (;; shift = shift > 8 ? shift - 8 : 0) {
        for (int bin = thread_id(); bin < NUM_BINS; bin += CTA_THREADS) scratch.bins[bin] = 0;
        meet_in_cta();
        visit_logits<T>(scratch, [&](float logit) {
            const u32 distance = short_key(logit, idle) - low;
            if (distance >= width) return;
            const u64 share = by_number ? 1 : fixed_weight(known.law, logit);
            atomicAdd(&scratch.bins[distance >> shift], share);
        });
        meet_in_cta();
        if (warp_id() == 0) find_bin(scratch);
        meet_in_cta();
        low += scratch.bin << shift;
        width = 1u << shift;
        if (shift == 0) return from_short_key(low, idle);
    }
}

template <typename T>
__device__ inline u64 mass_from(Scratch& scratch, float floor) {
    const Known& known = scratch.rows[scratch.row].known;
    u64 mine = 0;
    visit_logits<T>(scratch, [&](float logit) {
        if (logit >= floor) mine += fixed_weight(known.law, logit);
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
        const u64 sum = mass_from<T>(scratch, floor);
        if (thread_id() == 0) {
            known.bound = floor;
            known.sum = sum;
        }
        meet_in_cta();
    }
}
