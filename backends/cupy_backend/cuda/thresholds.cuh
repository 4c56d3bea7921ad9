// Laws of rows that their blocks' statistics leave open, by reading them again: up to ROWS_AT_ONCE,
// whose bounds are known. By a whole CTA.
#pragma once
#include "digits.cuh"
#include "ends.cuh"
#include "peaks.cuh"

__device__ inline void clear_counts(Scratch& scratch, int num_rows) {
    constexpr int a_row = sizeof(scratch.counts[0]) / sizeof(u32);
    u32* counts = scratch.counts[0];
#pragma unroll 1
    for (int i = thread_id(); i < num_rows * a_row; i += CTA_THREADS) counts[i] = 0;
}

// How many warps share a row of so many.
__device__ inline int warps_of_row(int num_rows) {
    return num_rows == 1 ? CTA_WARPS : num_rows == 2 ? CTA_WARPS / 2 : CTA_WARPS / 4;
}

// Counts rows, the CTA's share of those that are shared. Warps divide the rows among themselves.
__device__ COLD void count_rows(Scratch& scratch, Worker cta) {
    const int warps = warps_of_row(scratch.num_rows);
    const int i = warp_id() / warps, warp = warp_id() % warps;
    if (i < scratch.num_rows && scratch.rows[i].counted) {
        Worker worker = {warp, warps};
        if (scratch.rows[i].shared) worker = {cta.index + cta.count * warp, cta.count * warps};
        if (SAME_LOGITS || !scratch.rows[i].is_draft)
            count_share<TargetLogit>(scratch, i, worker);
        else
            count_share<DraftLogit>(scratch, i, worker);
    }
    meet_in_cta();
}

// What the filters keep of the row becomes its bound and its mass, where not every logit has a counter.
template <typename T>
__device__ inline void filter_uncounted(Scratch& scratch) {
    if constexpr (IDLE_BITS<T> == 0)
        if (filter_listed<T>(scratch)) return;
    if constexpr (IDLE_BITS<T> == 16)
        if (filter_by_ends<T>(scratch)) return;
    filter_by_digits<T>(scratch);
}

// The first row whose law is not known, ROWS_AT_ONCE if there is none.
__device__ inline int first_uncounted(const Scratch& scratch) {
    int first = ROWS_AT_ONCE;
#pragma unroll
    for (int i = ROWS_AT_ONCE - 1; i >= 0; --i)
        if (i < scratch.num_rows && !scratch.rows[i].counted) first = i;
    return first;
}

// Rows that are not counted, from the one at hand on, which use the counters' place. They pass for counted
// then.
__device__ COLD void filter_others(Scratch& scratch) {
#pragma unroll 1
    while (scratch.row < ROWS_AT_ONCE) {
        if (SAME_LOGITS || !scratch.rows[scratch.row].is_draft)
            filter_uncounted<TargetLogit>(scratch);
        else
            filter_uncounted<DraftLogit>(scratch);
        meet_in_cta();
        if (thread_id() == 0) {
            OpenRow& open = scratch.rows[scratch.row];
            set_kept(open.known.law, {open.known.bound, open.known.sum});
            open.counted = true;
            scratch.row = first_uncounted(scratch);
        }
        meet_in_cta();
    }
}

// Their laws, those that are counted side by side.
__device__ inline void filter_rows(Scratch& scratch) {
    filter_by_counts(scratch);
    if (thread_id() == 0) scratch.row = first_uncounted(scratch);
    meet_in_cta();
    if (scratch.row < ROWS_AT_ONCE) filter_others(scratch);
}

// Masses of what the law of a row keeps of a worker's share of its blocks, for those that keep something.
__device__ COLD void keep_masses(Scratch& scratch, int i, Worker worker) {
    OpenRow& open = scratch.rows[i];
    visit_blocks(worker, open.target, open.stats, open.known.law.threshold,
                 [&](int block, const float(&logits)[PER_LANE]) {
                     const Law& law = open.known.law;
                     const float sum = block_sum(logits, open.stats[block].max, law.scale, law.threshold);
                     if (lane_id() == 0) open.stats[block].sum = sum;
                 });
}
