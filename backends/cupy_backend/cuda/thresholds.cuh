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

// Counts rows, the CTA's share of those that are shared. Warps divide the rows among themselves.
__device__ COLD void count_rows(Scratch& scratch, int num_rows, Worker cta) {
    const int warps = num_rows == 1 ? CTA_WARPS : num_rows == 2 ? CTA_WARPS / 2 : CTA_WARPS / 4;
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
    __syncthreads();
}

// Where a row's logits cannot be counted one by one.
template <typename T>
__device__ COLD Kept filter_uncounted(Scratch& scratch, OpenRow& open) {
    if constexpr (IDLE_BITS<T> == 0) {
        Kept kept;
        if (filter_listed<T>(scratch, open, kept)) return kept;
    }
    return filter_by_digits<T>(scratch, open);
}

__device__ inline void set_kept(Law& law, const Kept& kept) {
    law.threshold = kept.threshold;
    law.log2_sum = log2f(from_fixed(kept.sum));
}

template <typename T>
__device__ inline Kept filter_row(Scratch& scratch, int place) {
    if constexpr (IDLE_BITS<T> > 0)
        if (scratch.rows[place].counted) return filter_by_counts<T>(scratch, place);
    return filter_uncounted<T>(scratch, scratch.rows[place]);
}

// Their laws. Rows that are not counted come last: they use the counters' place.
__device__ COLD void filter_rows(Scratch& scratch, int num_rows) {
#pragma unroll 1
    for (int i = 0; i < 2 * num_rows; ++i) {
        const int place = i % num_rows;
        OpenRow& open = scratch.rows[place];
        if (open.counted != (i < num_rows)) continue;
        const Kept kept = SAME_LOGITS || !open.is_draft ? filter_row<TargetLogit>(scratch, place)
                                                        : filter_row<DraftLogit>(scratch, place);
        if (thread_id() == 0) set_kept(open.known.law, kept);
        __syncthreads();
    }
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
