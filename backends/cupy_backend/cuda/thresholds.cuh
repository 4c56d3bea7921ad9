// Laws of rows that their blocks' statistics leave open, by reading them again. By a whole CTA.
#pragma once
#include "digits.cuh"
#include "peaks.cuh"

// Where a row's logits cannot be counted one by one.
template <typename T>
__device__ COLD Kept filter_uncounted(Scratch& scratch) {
    if constexpr (IDLE_BITS<T> == 0) {
        Kept kept;
        if (filter_listed<T>(scratch, kept)) return kept;
    }
    return filter_by_digits<T>(scratch);
}

// The law of the row at hand. To be read before the next barrier but one.
template <typename T>
__device__ inline Law filter_row(Scratch& scratch, bool counted) {
    const Kept kept = IDLE_BITS<T> > 0 && counted ? filter_by_counts<T>(scratch)
                                                  : filter_uncounted<T>(scratch);
    Law law = scratch.at_hand.known.law;
    law.threshold = kept.threshold;
    law.log2_sum = log2f(from_fixed(kept.sum));
    return law;
}

// The same of a row whose largest logit is known, read by this CTA alone.
template <typename T>
__device__ COLD Law settle_alone(Scratch& scratch) {
    bound_row<T>(scratch);
    const bool counted = is_countable<T>(scratch.at_hand.known);
    if (IDLE_BITS<T> > 0 && counted) count_share<T>(scratch, whole_cta());
    return filter_row<T>(scratch, counted);
}

// Masses of what a law keeps of a worker's share of the blocks, for those that keep something.
template <typename T>
__device__ inline void keep_masses(
    const Worker& worker, const Row<T>& row, Mass* stats, const Law& law) {
    visit_blocks(worker, row, stats, law.threshold,
                 [&](int block, const float(&logits)[PER_LANE]) {
                     const float sum = block_sum(logits, stats[block].max, law.scale, law.threshold);
                     if (lane_id() == 0) stats[block].sum = sum;
                 });
}
