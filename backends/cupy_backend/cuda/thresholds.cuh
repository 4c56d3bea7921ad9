// Laws of rows that their blocks' statistics leave open, by reading them again: up to ROWS_AT_ONCE,
// whose bounds are known. By a whole CTA.
#pragma once
#include "digits.cuh"
#include "peaks.cuh"

__device__ inline void clear_counts(Scratch& scratch, int num_rows) {
#pragma unroll 1
    for (int i = 0; i < num_rows; ++i)
        for (int j = thread_id(); j < MAX_COUNTED; j += CTA_THREADS) scratch.counts[i][j] = 0;
}

// How many warps share a row of so many.
__device__ inline int warps_of_row(int num_rows) {
    return num_rows == 1 ? CTA_WARPS : num_rows == 2 ? CTA_WARPS / 2 : CTA_WARPS / 4;
}

// Counts rows, the CTA's share of those that are shared. Warps divide the rows among themselves.
__device__ COLD void count_rows(Scratch& scratch, int num_rows, Worker cta) {
    const int warps = warps_of_row(num_rows);
    const int place = warp_id() / warps, warp = warp_id() % warps;
    if (place < num_rows && scratch.rows[place].counted) {
        OpenRow& open = scratch.rows[place];
        Worker worker = {warp, warps};
        if (open.shared) worker = {cta.index + cta.count * warp, cta.count * warps};
        if constexpr (IDLE_BITS<TargetLogit> > 0)
            if (SAME_LOGITS || !open.is_draft)
                count_share<TargetLogit>(open, scratch.counts[place], worker);
        if constexpr (!SAME_LOGITS && IDLE_BITS<DraftLogit> > 0)
            if (open.is_draft) count_share<DraftLogit>(open, scratch.counts[place], worker);
    }
    meet_in_cta();
}

// Where a row's logits cannot be counted one by one.
template <typename T>
__device__ inline Kept filter_uncounted(Scratch& scratch, OpenRow& open) {
    if constexpr (IDLE_BITS<T> == 0) {
        Kept kept;
        if (filter_listed<T>(scratch, open, kept)) return kept;
    }
    return filter_by_digits<T>(scratch, open);
}

// Rows that are not counted, one after the other: they use the counters' place.
__device__ COLD void filter_others(Scratch& scratch, int num_rows) {
#pragma unroll 1
    for (int place = 0; place < num_rows; ++place) {
        OpenRow& open = scratch.rows[place];
        if (open.counted) continue;
        const Kept kept = SAME_LOGITS || !open.is_draft
            ? filter_uncounted<TargetLogit>(scratch, open)
            : filter_uncounted<DraftLogit>(scratch, open);
        if (thread_id() == 0) set_kept(open.known.law, kept);
        meet_in_cta();
    }
}

// Their laws, those that are counted side by side.
__device__ inline void filter_rows(Scratch& scratch, int num_rows) {
    bool all = true;
    for (int i = 0; i < num_rows; ++i) all = all && scratch.rows[i].counted;
    filter_by_counts(scratch, num_rows);
    meet_in_cta();
    if (!all) filter_others(scratch, num_rows);
}

// Masses of what a law keeps of a worker's share of the blocks, for those that keep something.
template <typename T>
__device__ COLD void keep_masses(Row<T>& row, Mass* stats, const Law& law, Worker worker) {
    visit_blocks(worker, row, stats, law.threshold,
                 [&](int block, const float(&logits)[PER_LANE]) {
                     const float sum = block_sum(logits, stats[block].max, law.scale, law.threshold);
                     if (lane_id() == 0) stats[block].sum = sum;
                 });
}
