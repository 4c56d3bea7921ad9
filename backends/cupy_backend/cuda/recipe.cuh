// Stage 2: a row's law from its blocks' statistics, as the request's recipe says.
#pragma once
#include "thresholds.cuh"

// By a CTA, the same in all its threads. What the law keeps of a block is kept_of(stats, law, is_lone),
// for which `stats` are changed.
template <typename T>
__device__ inline FoundLaw row_law(
    Scratch& scratch, const Row<T>& row, Mass* stats, const Filters& filters) {
    FoundLaw found = find_row_law(stats, row.num_blocks(), filters);
    if (!found.is_open) return found;
    __syncthreads();
    if (thread_id() == 0) set_row(scratch, row, stats, filters, found.law.max);
    __syncthreads();
    found.law = settle_alone<T>(scratch);
    __syncthreads();
    keep_masses(whole_cta(), row, stats, found.law);
    __syncthreads();
    return found;
}

// The lowest logit, among those from `floor` on, with less than `target` above it; `weigh` gives
// each logit's share.
template <typename T, typename Weigh>
__device__ inline float radix_select(
    Scratch& scratch, const Row<T>& row, const Mass* stats, float floor, u64 target, Weigh weigh) {
    if (thread_id() == 0) {
        set_row(scratch, row, stats, Filters{}, -LEAST_LOGIT);
        scratch.at_hand.known.bound = fmaxf(floor, LEAST_LOGIT);
    }
    __syncthreads();
    return select_by_digits<T>(scratch, -LEAST_LOGIT, target, weigh);
}
