// The launch that reads rows if some request has a filter, in place of `statistics`: rows are counted at
// the same time, and the CTA that completes one finds its law.
#include "telling.cuh"

// Whether this CTA is the last one to read a row; it then has all counts of the row.
__device__ inline bool gathers_counts(
    const Params& p, const Request& request, const Work& work, bool counting) {
    if (work.num_pieces == 1) return true;
    const i64 side = side_of(p, request, work);
    u32* sums = p.counts + side * ROW_WORDS;
    if (counting) {
        add_counts_to(sums, NUM_COUNTS);
        append_list_to(sums);
    }
    if (!is_last_arrival(p.counted + side, work.num_pieces)) return false;
    if (counting) take_counts_from(sums);
    return true;
}

// Finds a law, or begins to; returns whether this CTA completes the row, and so knows both laws.
__device__ inline bool completes_row(
    TellingLaw& shared, RowFacts& facts, const Params& p, const Request& request, const Work& work) {
    const Filters filters = filters_of(p, request, work.is_draft);
    if (!gathers_counts(p, request, work, filters.any())) return false;
    // The last thread has the fewest statistics to load.
    if (thread_id() == CTA_THREADS - 1) shared.behind = is_behind_end(p, request, work.row);
    with_row(p, request, work, [&](const Row& row) {
        const Mass* stats = shared.kept.keep(stats_of(p, request, work), row.num_blocks());
        __syncthreads();
        if (!shared.behind) find_law(shared.finding, row, stats, filters);
    });
    return ends_search(shared, facts, p, request, work, filters);
}

// Code that has not run comes from memory. While others read rows, a CTA finds the law of a row of one logit, as
// the model gave it and as if changed, so that the others find the code in the cache: one request with top-k
// and top-p takes 7 % less.
__device__ inline void rehearse(TellingLaw& shared, const Params& p) {
    Adjustment bias = {};
    bias.num_bias = 1;
    for (int changed = 0; changed <= LISTS_BESIDE; ++changed) {
        clear_counts();
        if (thread_id() == 0) shared.kept.of[0] = {1.0f, 1.0f};
        __syncthreads();
        if (thread_id() == 0) count_one(1.0f, 1);
        if (warp_id() == 0 && changed) list_logits(lane_id() == 0, {1.0f});
        __syncthreads();
        const Row row = {
            nullptr, static_cast<int>(p.target_type), 1, 1, nullptr, changed ? &bias : nullptr, nullptr};
        find_law(shared.finding, row, shared.kept.of, filters_of(p.target, entry_of(p, 0), p.vocab_size));
    }
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, READING_THREADS / CTA_THREADS)
    thresholds(const __grid_constant__ Params p) {
    __shared__ Judgement judgement;
    __shared__ TellingLaw telling;
    __shared__ u32 largest;
    let_next_launch_begin();
    if (blockIdx.y > p.max_spec_len * (p.dense ? 2 : 1)) {
        if (blockIdx.x == 0) rehearse(telling, p);
        return;
    }
    work_on_piece(
        judgement, ending_in_counts(), p, true,
        [&](const Request& request, const Work& work, bool reads) {
            const Filters filters = work.is_draft ? request.draft_filters : request.filters;
            Counting counting = {};
            if (filters.any()) {
                counting = {&largest, filters.reach(work.is_draft ? p.draft_vocab_size : p.vocab_size)};
                clear_counts();
                if (thread_id() == 0) largest = float_key(-INFINITY);
                __syncthreads();
            }
            read_work(p, request, work, counting, nullptr, reads);
        },
        [&](const Request& request, const Work& work) {
            const bool ends = completes_row(telling, judgement.facts, p, request, work);
            return ends ? target_stats_of(p, request, work.row) : nullptr;
        });
}
